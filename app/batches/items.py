"""What an item of a text-generation batch may hold. Pure; one table of fields, one of message roles.

Ranges: Cloudflare's published input schema of its text-generation models where it has one, else OpenAI's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from app.batches import grammar
from app.engines.private import ENGINE_PRIVATE_FIELDS

MOST_BYTES_PER_TOKEN = 16  # of ordinary text; used only to refuse what cannot possibly fit the window
USUAL_BYTES_PER_TOKEN = 4
_TOKENS_PER_MESSAGE = 8
_MOST_TOKENS = 2**31 - 1  # that the queue counts of one item
_PREFIX_CHARACTERS = 256  # about 64 tokens: four blocks of vLLM's prefix cache

REMOTE_MEDIA = "remote and file media are refused; send the image as a data:image/…;base64 URL"


class ItemError(ValueError):
    """An item breaks a rule. `field` is the path inside the item, empty for the item itself."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message


class ItemFacts(NamedTuple):
    """What the queue needs to know of a valid item. `wants_json`: its answer is JSON by request.

    `answer_tokens`: the part of the estimate that is for the answer, at most.
    Items with the same `prefix` begin alike, so that an engine that has just seen one knows the beginning of the others.
    """

    reference: str | None
    est_tokens: int
    wants_json: bool
    affinity: str | None
    prefix: str
    answer_tokens: int


@dataclass(frozen=True, slots=True)
class ItemRules:
    """What depends on the model. `names`: what an item may call it; `one_choice`: its results have room for one answer.

    `stream`: whether the answer may be streamed, which that of a queued request cannot. `pooling`: how an embedding is made
    of a text's tokens.
    """

    context_window: int
    default_max_tokens: int
    names: frozenset[str] = frozenset()
    one_choice: bool = False
    vision: bool = False
    stream: bool = False
    pooling: str = "mean"


Examine = Callable[[Any, ItemRules], ItemFacts]


@dataclass(frozen=True, slots=True)
class Field:
    """What a field may hold: `check` says what is wrong with a value, None if nothing; `schema` is the same as JSON Schema."""

    check: Callable[[Any], str | None]
    schema: Mapping[str, Any]


def _number(low: float, high: float, *, whole: bool = False) -> Field:
    kind = "an integer" if whole else "a number"

    def check(value: Any) -> str | None:
        right = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if right and low <= value <= high:
            return None
        limits = f"{low} and {high}" if whole else f"{low:g} and {high:g}"
        return f"must be {kind} between {limits}, got {show(value)}"

    return Field(check, {"type": "integer" if whole else "number", "minimum": low, "maximum": high})


def _one_of(kind: type | tuple[type, ...], name: str, *types: str) -> Field:
    return Field(
        lambda value: None if isinstance(value, kind) else f"must be {name}, got {show(value)}", {"type": [*types]}
    )


def _stop(value: Any) -> str | None:
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, list) and len(texts) <= 16 and all(isinstance(t, str) and t for t in texts):
        return None
    return f"must be a string or a list of at most 16 non-empty strings, got {show(value)}"


def _response_format(value: Any) -> str | None:
    if not isinstance(value, dict) or value.get("type") not in ("text", "json_object", "json_schema"):
        return f"must be an object whose type is text, json_object or json_schema, got {show(value)}"
    if value["type"] == "json_schema" and not isinstance(value.get("json_schema"), dict):
        return "needs json_schema, an object: a bare schema or {name, schema}"
    return grammar.schema_problem(value.get("json_schema") or {})


def _tools(value: Any) -> str | None:
    if not isinstance(value, list):
        return f"must be a list of tools, got {show(value)}"
    problems = (grammar.schema_problem(tool) for tool in value if isinstance(tool, dict))
    return next((problem for problem in problems if problem), None)


def _options(value: Any) -> str | None:
    if isinstance(value, dict) and isinstance(value.get("rejectIfBusy", False), bool):
        return None
    return f"must be an object, in which rejectIfBusy is true or false, got {show(value)}"


_BOOLEAN = _one_of(bool, "true or false", "boolean")
_STRING = _one_of(str, "a string", "string")
_WORD = {"type": "string", "minLength": 1}
_STOP = {"anyOf": [_WORD, {"type": "array", "maxItems": 16, "items": _WORD}]}
_RESPONSE_FORMAT = {
    "type": "object",
    "properties": {"type": {"enum": ["text", "json_object", "json_schema"]}},
    "required": ["type"],
    "if": {"properties": {"type": {"const": "json_schema"}}},
    "then": {"properties": {"json_schema": {"type": "object"}}, "required": ["json_schema"]},
}
_OPTIONS = {"type": "object", "properties": {"rejectIfBusy": {"type": "boolean"}}}

FIELDS: Mapping[str, Field] = {
    "temperature": _number(0, 5),
    "top_p": _number(0, 1),
    "top_k": _number(-1, 1_000_000, whole=True),
    "min_p": _number(0, 1),
    "seed": _number(-(2**63), 2**63 - 1, whole=True),
    "n": _number(1, 16, whole=True),
    "repetition_penalty": _number(0.01, 2),
    "frequency_penalty": _number(-2, 2),
    "presence_penalty": _number(-2, 2),
    "top_logprobs": _number(0, 20, whole=True),
    "logprobs": _one_of((bool, int), "true or false", "boolean", "integer"),
    "stop": Field(_stop, _STOP),
    "raw": _BOOLEAN,
    "stream": _BOOLEAN,
    "response_format": Field(_response_format, _RESPONSE_FORMAT),
    "structured_outputs": Field(grammar.structured_problem, {"type": "object"}),
    "tools": Field(_tools, {"type": "array"}),
    "external_reference": _STRING,
    "session_id": _STRING,
    "options": Field(_options, _OPTIONS),
}

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
LENGTHS = ("max_tokens", "max_completion_tokens")


def examine(item: Any, rules: ItemRules) -> ItemFacts:
    """Check one item against every rule. Raises ItemError naming the first broken one."""
    check_fields(item, rules)
    if (item.get("n") or 1) > 1 and rules.one_choice:
        raise ItemError("n", "this model answers with one choice; send the item several times instead")
    size = _prompt_bytes(item, rules)
    least, prompt = size // MOST_BYTES_PER_TOKEN, size // USUAL_BYTES_PER_TOKEN + _TOKENS_PER_MESSAGE
    return answer_facts(item, rules, least, prompt, item.get("n") or 1, LENGTHS)


def check_fields(item: Any, rules: ItemRules) -> None:
    """What holds on every route: an object, nobody else's fields, every known field in its range. Raises ItemError."""
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
    if item.get("model") is not None and item["model"] not in rules.names:
        raise ItemError(
            "model", f"the URL names the model of all items, this one wants {show(item['model'])}; leave it out"
        )
    if item.get("stream") and not rules.stream:
        raise ItemError("stream", "a queued request cannot stream; leave it out")


def answer_facts(
    item: dict[str, Any], rules: ItemRules, least: int, prompt: int, copies: int, lengths: tuple[str, ...]
) -> ItemFacts:
    """What the queue needs to know of an item whose prompt has at least `least` tokens, and about `prompt` in all.

    `copies`: answers to it, each limited by the first of `lengths` that is given. Raises ItemError if they cannot fit.
    """
    answers = _fitting_answer(item, least, rules, lengths) * copies
    wants_json = (item.get("response_format") or {}).get("type") in ("json_object", "json_schema")
    reference, affinity = item.get("external_reference"), item.get("session_id")
    return ItemFacts(
        reference, min(prompt + answers, _MOST_TOKENS), wants_json, affinity, _prefix(item), min(answers, _MOST_TOKENS)
    )


def _prefix(item: dict[str, Any]) -> str:
    """How the prompt of a valid item begins."""
    messages = item.get("messages")
    if messages is None:
        given = item.get("prompt") or item.get("input")
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


def _fitting_answer(item: dict[str, Any], least: int, rules: ItemRules, lengths: tuple[str, ...]) -> int:
    """Tokens of the answer, beside a prompt of at least `least` tokens. Raises when both cannot fit the window."""
    answer = _answer_tokens(item, rules, lengths)
    if least + answer <= rules.context_window:
        return answer
    given = next((name for name in lengths if item.get(name) is not None), None)
    prompt = next(name for name in ("prompt", "messages", "input") if item.get(name) is not None)
    raise ItemError(
        given if given and least < rules.context_window else prompt,
        f"the prompt has at least {least} tokens, and {answer} are {'asked' if given else 'usual'} for the answer: "
        f"together beyond the context window of {rules.context_window}",
    )


def _answer_tokens(item: dict[str, Any], rules: ItemRules, lengths: tuple[str, ...]) -> int:
    least = None
    for name in lengths:
        value = item.get(name)
        if value is None:
            continue
        if type(value) is not int or not 1 <= value <= rules.context_window:
            problem = _number(1, rules.context_window, whole=True).check(value)
            raise ItemError(name, f"{problem} (the context window of the model is {rules.context_window})")
        if least is None or value < least:
            least = value
    return min(rules.default_max_tokens, rules.context_window) if least is None else least


def _prompt_bytes(item: dict[str, Any], rules: ItemRules) -> int:
    prompt, messages = item.get("prompt"), item.get("messages")
    if (prompt is None) == (messages is None):
        if foreign := next((name for name in ("text", "query", "contexts") if prompt is None and name in item), None):
            raise ItemError(foreign, "is for embedding models; this one generates text from prompt or messages")
        both = "both were sent" if prompt is not None else "neither was sent"
        raise ItemError("", f"needs exactly one of prompt and messages; {both}")
    if prompt is not None:
        if not isinstance(prompt, str) or not prompt:
            raise ItemError("prompt", f"must be a non-empty string, got {show(prompt)}")
        return len(prompt.encode())
    if not isinstance(messages, list) or not messages:
        raise ItemError("messages", f"must be a non-empty list, got {show(messages)}")
    size = 0
    for i, message in enumerate(messages):
        content = message.get("content") if type(message) is dict and message.get("role") in ROLES else None
        if type(content) is str:
            size += len(content) if content.isascii() else len(content.encode())
        else:
            size += _message_bytes(f"messages[{i}]", message, rules)
    return size


def _message_bytes(where: str, message: Any, rules: ItemRules) -> int:
    if not isinstance(message, dict):
        raise ItemError(where, f"must be an object with role and content, got {show(message)}")
    if message.get("role") not in ROLES:
        raise ItemError(f"{where}.role", f"must be one of {', '.join(ROLES)}, got {show(message.get('role'))}")
    content = message.get("content")
    if content is None or isinstance(content, str):
        return len(content.encode()) if content else 0
    if not isinstance(content, list):
        raise ItemError(f"{where}.content", f"must be a string, a list of parts or null, got {show(content)}")
    return sum(_part_bytes(f"{where}.content[{i}]", part, rules) for i, part in enumerate(content))


def _part_bytes(where: str, part: Any, rules: ItemRules) -> int:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return len(part["text"].encode())
    if kind != "image_url":
        raise ItemError(where, "must be a part of type text with its text, or of type image_url")
    if not rules.vision:
        raise ItemError(where, "this model does not take images")
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    if not isinstance(url, str) or not url.startswith("data:image/"):
        raise ItemError(where, REMOTE_MEDIA)
    return 0


def show(value: Any) -> str:
    """A value as error messages quote it."""
    text = "null" if value is None else "nothing" if value == "" else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
