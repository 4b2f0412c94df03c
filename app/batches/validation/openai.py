"""The rules for OpenAI's completions, embeddings and responses; text_generation has those for chat. Pure.

The engine gets the bodies whole. Checked are the facts that Slackwater needs: the size of the prompt, the length of the
answer, and that no field is one that only the operator may set.
"""

from typing import Any, NamedTuple, Self

from app.batches.validation.content_parts import REMOTE_MEDIA
from app.batches.validation.fields import show
from app.batches.validation.grammar import schema_problem
from app.batches.validation.text_generation import (
    MOST_BYTES_PER_TOKEN,
    USUAL_BYTES_PER_TOKEN,
    ItemError,
    ItemFacts,
    ItemRules,
    answer_facts,
    check_fields,
    check_part,
    check_role,
    examine,
    json_bytes,
    wrong,
)
from app.engines.content_parts import KEYS
from app.engines.embeddings import NATIVE_FORMS
from app.errors import BadInput
from app.openai_codes import OpenAICode

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
_MOST_INPUTS = 2048  # OpenAI's limit for one embeddings call
# The fields of an input item that are text of the prompt, and those that are written into it as JSON.
_TEXT_FIELDS = frozenset(("content", "text", "output", "arguments", "input", "summary", "name", "code", "refusal"))
_JSON_FIELDS = frozenset(("tools", "action", "queries", "results", "outputs"))
_FIELDS_WITH_PARTS = ("content", "output", "summary")
_PART_TYPES = tuple(KEYS)
# The types of input items that consist of text. An item without a type is a message.
TEXT_ITEM_TYPES = (
    "message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
    "web_search_call", "file_search_call", "code_interpreter_call", "mcp_call", "mcp_list_tools", "mcp_approval_request",
    "mcp_approval_response",
)  # fmt: skip


def chat(item: Any, rules: ItemRules) -> ItemFacts:
    """`/v1/chat/completions`: messages."""
    if isinstance(item, dict):
        _check_chat(item)
    return examine(item, rules)


def _check_chat(item: dict[str, Any]) -> None:
    """Check what only chat has, or has otherwise. Raises ItemError."""
    if item.get("messages") is None:
        raise ItemError("messages", "is missing", OpenAICode.MISSING)
    if not isinstance(item.get("logprobs") or False, bool):
        raise wrong(item, "logprobs", "must be true or false; top_logprobs is how many")
    if item.get("top_logprobs") and not item.get("logprobs"):
        raise ItemError("top_logprobs", "needs logprobs: true")
    if (metadata := item.get("metadata")) is not None and not _is_texts(metadata):
        raise wrong(item, "metadata", "must be an object whose values are strings")


def _is_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())


def completion(item: Any, rules: ItemRules) -> ItemFacts:
    """`/v1/completions`: a text, token ids, or a list of either."""
    check_fields(item, rules)
    sizes = _inputs(item, "prompt")
    copies = (item.get("n") or 1) * len(sizes)
    least, about = max(size.least for size in sizes), sum(size.about for size in sizes)
    return answer_facts(item, rules, least, about, copies, ("max_tokens",))


def embedding(item: Any, rules: ItemRules) -> ItemFacts:
    """`/v1/embeddings`: a text, token ids, or a list of either; nothing is generated."""
    check_fields(item, rules)
    if item.get("stream"):
        raise ItemError("stream", "embeddings cannot be streamed; leave it out")
    for name in ("messages", *NATIVE_FORMS):
        if item.get(name) is not None:
            raise ItemError(name, "this route takes texts in `input`; leave it out")
    sizes = _inputs(item, "input")
    if (least := max(size.least for size in sizes)) > rules.context_window:
        message = f"has at least {least} tokens, beyond the context window of {rules.context_window}"
        raise ItemError("input", message, OpenAICode.TOO_LONG)
    return ItemFacts(
        None,
        sum(size.about for size in sizes),
        wants_json=False,
        affinity=None,
        prefix="",
        answer_tokens=0,
        most_tokens=0,
    )


def response(item: Any, rules: ItemRules) -> ItemFacts:
    """`/v1/responses`: a text or a list of input items, without what it continues."""
    check_fields(item, rules)
    for name in ("previous_response_id", "conversation"):
        if item.get(name) is not None:
            raise ItemError(
                name, "only POST /v1/responses continues a conversation; send the whole conversation as input"
            )
    if item.get("background"):
        raise ItemError("background", "a queued request is already in the background; leave it out")
    given = item.get("input")
    if not isinstance(given, (str, list)) or not given:
        raise wrong(item, "input", "must be a non-empty string or a list of input items")
    for place, each in enumerate(given if isinstance(given, list) else ()):
        _check_item(each, f"input[{place}]", rules)
    _check_reasoning(item.get("reasoning"))
    if not isinstance(item.get("instructions") or "", str):
        raise ItemError("instructions", f"must be a string, got {show(item['instructions'])}")
    form = (item.get("text") or {}).get("format") if isinstance(item.get("text"), dict) else None
    if isinstance(form, dict) and (problem := schema_problem(form)):
        raise ItemError("text.format", problem)
    size = _Size.of(_text_bytes(given) + _text_bytes(item.get("instructions")))
    return answer_facts(item, rules, size.least, size.about, 1, ("max_output_tokens",))


def check_items(items: list[Any]) -> None:
    """Check items that are added to a conversation. Raises BadInput."""
    for place, each in enumerate(items):
        try:
            _check_item(each, f"items[{place}]", None)
        except ItemError as error:
            raise BadInput(f"Bad input: {error}", param=error.field or None) from None


def _check_item(item: Any, where: str, rules: ItemRules | None) -> None:
    if not isinstance(item, dict):
        raise ItemError(where, f"must be an object with role and content, or another item, got {show(item)}")
    _check_type(item, where)
    if item.get("role") is not None:  # some clients send all fields, also of items that have none
        check_role(where, item)
    if rules is not None:
        _check_parts(item, where, rules)


def _check_reasoning(given: Any) -> None:
    """Check `reasoning`, an object with `effort`. Raises ItemError."""
    if given is None:
        return
    if not isinstance(given, dict):
        raise ItemError("reasoning", f'must be an object like {{"effort": "low"}}, got {show(given)}')
    if given.get("effort") not in (None, *EFFORTS):
        raise ItemError("reasoning.effort", f"must be one of {', '.join(EFFORTS)}, got {show(given['effort'])}")


class _Size(NamedTuple):
    """The size of an input in tokens: `least` is a lower bound, `about` an estimate."""

    least: int
    about: int

    @classmethod
    def of(cls, size: int) -> Self:
        """The size of a text with this number of bytes."""
        return cls(size // MOST_BYTES_PER_TOKEN, size // USUAL_BYTES_PER_TOKEN + 1)


def _inputs(item: dict[str, Any], name: str) -> list[_Size]:
    """The size of each input in this field. Raises ItemError."""
    value = item.get(name)
    problem = wrong(item, name, "must be a non-empty string, a list of token ids, or a list of either")
    if isinstance(value, str) and value:
        return [_Size.of(len(value.encode()))]
    if not isinstance(value, list) or not value:
        raise problem
    if _ids(value):
        return [_Size(len(value), len(value))]
    if len(value) > _MOST_INPUTS:
        raise ItemError(name, f"at most {_MOST_INPUTS} inputs in one call, got {len(value)}; send several, or a batch")
    if not all((isinstance(each, str) and each) or (isinstance(each, list) and _ids(each)) for each in value):
        raise problem
    return [_Size.of(len(each.encode())) if isinstance(each, str) else _Size(len(each), len(each)) for each in value]


def _ids(value: list[Any]) -> bool:
    return bool(value) and all(type(each) is int and each >= 0 for each in value)


def _check_type(item: dict[str, Any], where: str) -> None:
    """Check the type of an input item, and that it has no URL outside its parts that an engine could fetch. Raises ItemError."""
    kind = item.get("type")
    if kind is not None and kind not in TEXT_ITEM_TYPES:
        raise ItemError(f"{where}.type", f"must be one of {', '.join(TEXT_ITEM_TYPES)}, got {show(kind)}")
    left: list[tuple[str, Any]] = [
        (where, {name: each for name, each in item.items() if name not in _FIELDS_WITH_PARTS})
    ]
    while left:
        at, value = left.pop()
        if isinstance(value, list):
            left += [(f"{at}[{i}]", each) for i, each in enumerate(value)]
        if not isinstance(value, dict):
            continue
        for name, each in value.items():
            if isinstance(each, str) and (name == "url" or name.endswith("_url")) and not each.startswith("data:"):
                raise ItemError(f"{at}.{name}", REMOTE_MEDIA)
            if name != "annotations":
                left.append((f"{at}.{name}", each))


def _check_parts(item: dict[str, Any], where: str, rules: ItemRules) -> None:
    """Check the content parts of an input item of any type. Raises ItemError."""
    for name in _FIELDS_WITH_PARTS:
        value = item.get(name)
        if value is None or isinstance(value, str):
            continue
        if not isinstance(value, list):
            raise ItemError(f"{where}.{name}", f"must be a string or a list of parts, got {show(value)}")
        for i, part in enumerate(value):
            check_part(f"{where}.{name}[{i}]", part, _PART_TYPES, rules)


def _text_bytes(value: Any) -> int:
    """The bytes of all text in a tree of input items, without media."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, list):
        return sum(map(_text_bytes, value))
    if isinstance(value, dict):
        return sum(
            _text_bytes(part) if name in _TEXT_FIELDS else json_bytes(part)
            for name, part in value.items()
            if name in _TEXT_FIELDS or name in _JSON_FIELDS
        )
    return 0
