"""The rules for an item for a text model: its prompt or messages, and an answer that fits the context window. Pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from app.batches.validation.content_parts import part_problem
from app.batches.validation.fields import FIELDS, MOST_TOKENS, misspelt, number, show
from app.engines.content_parts import OF_CHAT
from app.openai_codes import OpenAICode
from workers.engine.private_fields import ENGINE_PRIVATE_FIELDS

MOST_BYTES_PER_TOKEN = 16  # of ordinary text; for lower bounds of the number of tokens
USUAL_BYTES_PER_TOKEN = 4
_TOKENS_PER_MESSAGE = 8
_PREFIX_CHARACTERS = 256  # about 64 tokens: four blocks of vLLM's prefix cache
_SYSTEM_CHARACTERS, _LEAST_SYSTEM_CHARACTERS = 1024, 64  # of the instructions that name a prompt's family
_INSTRUCTING = ("system", "developer")
_PLAIN = frozenset(("role", "content"))  # the fields of a message whose text is measured without their names
# What an engine writes into the prompt besides the text; `text`: of a response, with its schema. A template may leave it out, so
# it belongs to no lower bound.
_ASIDE = frozenset(
    ("tools", "functions", "response_format", "structured_outputs", "documents", "chat_template_kwargs", "text")
)


class ItemError(ValueError):
    """An item violates a rule. `field` is the path in the item, empty for the item itself. `reason`: OpenAI's code."""

    def __init__(self, field: str, message: str, reason: OpenAICode | None = None) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message
        self.reason = reason


def wrong(holder: Mapping[str, Any], name: str, must: str, where: str = "") -> ItemError:
    """The error of a field of this object, which is missing or is not what it must be. `where`: the path of the object."""
    field = f"{where}.{name}" if where else name
    if name in holder:
        return ItemError(field, f"{must}, got {show(holder[name])}")
    return ItemError(field, f"is missing; it {must}", OpenAICode.MISSING)


class ItemFacts(NamedTuple):
    """The facts about a valid item that the queue needs. `wants_json`: it asks for JSON as its answer.

    `answer_tokens`: the answer's part of the estimate. `most_tokens`: the upper limit of the answer.
    Items with the same `prefix` begin with the same text, so an engine that has one in its prefix cache serves others faster.
    `beginning`: the text that names the prompt's family.
    """

    reference: str | None
    est_tokens: int
    wants_json: bool
    affinity: str | None
    prefix: str
    answer_tokens: int
    most_tokens: int
    beginning: str = ""


@dataclass(frozen=True, slots=True)
class ItemRules:
    """The rules that depend on the model. `names`: its name and aliases; `one_choice`: its results contain one answer.

    An answer without a limit ends after `default_max_tokens`. With `usual_tokens` it may use the rest of the context window
    instead, and that is its usual length. `stream`: whether the answer may be streamed; that of a queued request may not.
    `pooling`: how an embedding is made from a text's tokens. `responses`: Workers AI's routes also accept the form of the
    Responses API. `media_hosts`: from which its engine may fetch images.
    """

    context_window: int
    default_max_tokens: int
    names: frozenset[str] = frozenset()
    one_choice: bool = False
    vision: bool = False
    stream: bool = False
    pooling: str = "mean"
    responses: bool = False
    media_hosts: frozenset[str] = frozenset()
    usual_tokens: int | None = None


Examine = Callable[[Any, ItemRules], ItemFacts]

ROLE = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,64}")
_USUAL_ROLES = frozenset(("system", "user", "assistant", "tool"))
LENGTHS = ("max_tokens", "max_completion_tokens")


def examine(item: Any, rules: ItemRules) -> ItemFacts:
    """Check an item against all rules. Raises ItemError for the first violation."""
    check_fields(item, rules)
    if (item.get("n") or 1) > 1 and rules.one_choice:
        raise ItemError("n", "this model answers with one choice; send the item several times instead")
    size, besides = _prompt_bytes(item, rules)
    least = size // MOST_BYTES_PER_TOKEN
    prompt = (size + besides) // USUAL_BYTES_PER_TOKEN + _TOKENS_PER_MESSAGE
    return answer_facts(item, rules, least, prompt, item.get("n") or 1, LENGTHS)


def check_fields(item: Any, rules: ItemRules) -> None:
    """Check the rules of every route: an object, no field of the operator, every known field in its range. Raises ItemError."""
    if not isinstance(item, dict):
        raise ItemError("", f"must be an object, got {show(item)}")
    if not ENGINE_PRIVATE_FIELDS.isdisjoint(item):
        name = next(iter(item.keys() & ENGINE_PRIVATE_FIELDS))
        raise ItemError(name, "is set by Slackwater and may not be sent; remove it")
    for name, value in item.items():
        field = FIELDS.get(name)
        problem = field.check(value) if field and value is not None else None
        if problem:
            raise ItemError(name, problem)
    model = item.get("model")
    if model is not None and not (isinstance(model, str) and model in rules.names):
        raise ItemError(
            "model", f"the URL names the model of all items, but this one names {show(model)}; leave it out"
        )
    if item.get("stream") and not rules.stream:
        raise ItemError("stream", "a queued request cannot stream; leave it out")


def answer_facts(
    item: dict[str, Any], rules: ItemRules, least: int, prompt: int, copies: int, lengths: tuple[str, ...]
) -> ItemFacts:
    """The facts about an item whose prompt has at least `least` and about `prompt` tokens.

    `copies`: the number of its answers. The smallest of the fields `lengths` limits each. Raises ItemError if they cannot fit.
    """
    usual, most = _fitting_answer(item, least, rules, lengths)
    prompt += _aside_bytes(item) // USUAL_BYTES_PER_TOKEN
    wants_json = (item.get("response_format") or {}).get("type") in ("json_object", "json_schema")
    reference, affinity = item.get("external_reference"), item.get("session_id")
    answers, most = min(usual * copies, MOST_TOKENS), min(most * copies, MOST_TOKENS)
    tokens, prefix = min(prompt + answers, MOST_TOKENS), _prefix(item)
    return ItemFacts(reference, tokens, wants_json, affinity, prefix, answers, most, _system_text(item) or prefix)


def json_bytes(value: Any) -> int:
    """The bytes of a value as JSON. Raises ItemError."""
    try:
        return len(orjson.dumps(value))
    except orjson.JSONEncodeError:
        raise ItemError("", "cannot be written as JSON; it is nested too deeply") from None


def _aside_bytes(item: dict[str, Any]) -> int:
    """The bytes of a valid item's tools and schemas."""
    if item.keys().isdisjoint(_ASIDE):
        return 0
    given = (item[name] for name in _ASIDE if item.get(name) and (name != "text" or isinstance(item[name], dict)))
    return sum(map(json_bytes, given))


def _besides(message: dict[str, Any]) -> int:
    """The bytes of what a message has besides its content: calls, reasoning, a name."""
    more = {name: value for name, value in message.items() if name not in _PLAIN}
    return json_bytes(more) if more else 0


def _prefix(item: dict[str, Any]) -> str:
    """The beginning of a valid item's prompt."""
    given, messages = item.get("prompt") or item.get("input"), item.get("messages")
    if given or not messages:  # besides `prompt` and `input`, `messages` is not checked
        return str(given[:_PREFIX_CHARACTERS]) if isinstance(given, (str, list)) else ""
    first = messages[0]
    if type(first.get("content")) is str and len(first["content"]) >= _PREFIX_CHARACTERS:
        return str((first["role"] + first["content"][:_PREFIX_CHARACTERS])[:_PREFIX_CHARACTERS])
    begin = ""
    for message in messages:
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        begin += message["role"] + "".join(str(part.get("text") or "") for part in parts)
        if len(begin) >= _PREFIX_CHARACTERS:
            break
    return begin[:_PREFIX_CHARACTERS]


def _system_text(item: dict[str, Any]) -> str:
    """The beginning of a valid item's instructions to the model; empty if they are short."""
    messages = item.get("messages")
    if messages and not (item.get("prompt") or item.get("input")):  # besides these, `messages` is not checked
        if messages[0]["role"] not in _INSTRUCTING:
            return ""
        text = messages[0].get("content")
    else:
        text = item.get("instructions")  # of a response
    return text[:_SYSTEM_CHARACTERS] if type(text) is str and len(text) >= _LEAST_SYSTEM_CHARACTERS else ""


def _fitting_answer(item: dict[str, Any], least: int, rules: ItemRules, lengths: tuple[str, ...]) -> tuple[int, int]:
    """The usual and the largest number of tokens of one answer to a prompt of at least `least`. Raises ItemError."""
    given = _given_limit(item, rules, lengths)
    limit = item[given] if given else _usual_limit(rules)
    if least + (limit or 1) > rules.context_window:
        prompt = next(name for name in ("prompt", "messages", "input") if item.get(name) is not None)
        raise ItemError(
            given if given and least < rules.context_window else prompt,
            _window_exceeded(least, limit, rules, explicit=bool(given)),
            OpenAICode.TOO_LONG,
        )
    most = rules.context_window - least if limit is None else limit
    shortest = item.get("min_tokens") or 0
    if shortest > most:
        raise ItemError("min_tokens", _too_long(shortest, most, rules, given))
    if rules.usual_tokens is None or limit is not None or item.get("ignore_eos"):
        return most, most
    return min(most, max(shortest, rules.usual_tokens)), most


def _usual_limit(rules: ItemRules) -> int | None:
    """The limit of an answer without one; None: the rest of the window."""
    return min(rules.default_max_tokens, rules.context_window) if rules.usual_tokens is None else None


def _window_exceeded(least: int, limit: int | None, rules: ItemRules, *, explicit: bool) -> str:
    """The message for a prompt and an answer that exceed the window together."""
    window, prompt = f"the context window of {rules.context_window}", f"the prompt has at least {least} tokens"
    if limit is None:
        return f"{prompt}, which leaves no room for an answer in {window}"
    kind = "asked" if explicit else "usual"
    return f"{prompt}, and {limit} are {kind} for the answer: together beyond {window}"


def _too_long(shortest: int, most: int, rules: ItemRules, given: str | None) -> str:
    """The message for `min_tokens` above the limit of the answer."""
    if given:
        return f"must not be above {given}, which is {most}, got {shortest}"
    if rules.usual_tokens is not None:
        return f"must not be above the {most} tokens that the prompt leaves of the context window, got {shortest}"
    return (
        f"must not be above the limit of the answer, which is {most} where none is set, got {shortest}; set max_tokens"
    )


def _given_limit(item: dict[str, Any], rules: ItemRules, lengths: tuple[str, ...]) -> str | None:
    """The smallest of the fields `lengths`, which limits the answer; None: none is set. Raises ItemError."""
    smallest = None
    for name in lengths:
        value = item.get(name)
        if value is None:
            continue
        if type(value) is not int or not 1 <= value <= rules.context_window:
            problem = number(1, rules.context_window, whole=True).check(value)
            raise ItemError(name, f"{problem} (the context window of the model is {rules.context_window})")
        if smallest is None or value < item[smallest]:
            smallest = name
    return smallest


def _prompt_bytes(item: dict[str, Any], rules: ItemRules) -> tuple[int, int]:
    """The bytes of the prompt's text, and of what its messages have besides."""
    prompt, messages = item.get("prompt"), item.get("messages")
    if (prompt is None) == (messages is None):
        if foreign := next((name for name in ("text", "query", "contexts") if prompt is None and name in item), None):
            raise ItemError(foreign, "is for embedding models; this model generates text from prompt or messages")
        both = "both were sent" if prompt is not None else f"neither was sent{misspelt(item, ('prompt', 'messages'))}"
        raise ItemError("", f"needs exactly one of prompt and messages; {both}")
    if prompt is not None:
        if not isinstance(prompt, str) or not prompt:
            raise wrong(item, "prompt", "must be a non-empty string")
        return len(prompt.encode()), 0
    if not isinstance(messages, list) or not messages:
        raise wrong(item, "messages", "must be a non-empty list")
    size = besides = 0
    for i, message in enumerate(messages):
        content = message.get("content") if type(message) is dict and _is_role(message.get("role")) else None
        if type(content) is str:
            size += len(content) if content.isascii() else len(content.encode())
            if len(message) > len(_PLAIN):
                besides += _besides(message)
        else:
            size += _message_bytes(f"messages[{i}]", message, rules)
            besides += _besides(message)
    return size, besides


def _is_role(said: Any) -> bool:
    """Whether it can be a role. Which there are is up to the model's template, which the engine asks."""
    return type(said) is str and (said in _USUAL_ROLES or ROLE.fullmatch(said) is not None)


def check_role(where: str, message: Mapping[str, Any]) -> None:
    """Raise ItemError for a message whose role can be none. `where`: the path of the message."""
    if not _is_role(message.get("role")):
        known = "must be system, user, assistant, tool or another role that the model's template knows"
        raise wrong(message, "role", f"{known} (1 to 64 characters, none of them a control character)", where)


def _message_bytes(where: str, message: Any, rules: ItemRules) -> int:
    if not isinstance(message, dict):
        raise ItemError(where, f"must be an object with role and content, got {show(message)}")
    check_role(where, message)
    content = message.get("content")
    if content is None or isinstance(content, str):
        return len(content.encode()) if content else 0
    if not isinstance(content, list):
        raise ItemError(f"{where}.content", f"must be a string, a list of parts or null, got {show(content)}")
    return sum(_part_bytes(f"{where}.content[{i}]", part, rules) for i, part in enumerate(content))


def _part_bytes(where: str, part: Any, rules: ItemRules) -> int:
    check_part(where, part, OF_CHAT, rules)
    return len(part["text"].encode()) if part["type"] == "text" else 0


def check_part(where: str, part: Any, kinds: tuple[str, ...], rules: ItemRules) -> None:
    """Check a part of a message's content, which must have one of these types. Raises ItemError."""
    if (problem := part_problem(part, kinds, vision=rules.vision, hosts=rules.media_hosts)) is not None:
        raise ItemError(where + problem.path, problem.message, problem.reason)
