"""The fields of an item that all routes know, with the rules for their values. Pure; the schemas use the same table.

Ranges: Cloudflare's published input schema of its text-generation models, else OpenAI's.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from app.admission.tool_output import FLAG
from app.batches.validation import grammar

MOST_TOKENS = 2**31 - 1  # the most tokens of one item that the queue can count
_SHOWN = 60  # characters of a value in a message
_MOST_NAMES, _NEAR = (
    20,
    0.8,
)  # names that are compared with one that is missing; difflib's ratio: a letter more, less or wrong


@dataclass(frozen=True, slots=True)
class Field:
    """The rule for a field: `check` returns the problem of a value, or None; `schema` is the same rule as JSON Schema."""

    check: Callable[[Any], str | None]
    schema: Mapping[str, Any]


def number(low: float, high: float, *, whole: bool = False) -> Field:
    """A number in a range, both ends included."""
    kind = "an integer" if whole else "a number"

    def check(value: Any) -> str | None:
        if _is_number(value) and (isinstance(value, int) or not whole) and low <= value <= high:
            return None
        limits = f"{low} and {high}" if whole else f"{low:g} and {high:g}"
        return f"must be {kind} between {limits}, got {show(value)}"

    return Field(check, {"type": "integer" if whole else "number", "minimum": low, "maximum": high})


def _one_of(kind: type | tuple[type, ...], name: str, *types: str) -> Field:
    return Field(
        lambda value: None if isinstance(value, kind) else f"must be {name}, got {show(value)}", {"type": [*types]}
    )


def _word(*words: str) -> Field:
    """One of these words."""

    def check(value: Any) -> str | None:
        return None if value in words else f"must be one of {', '.join(words)}, got {show(value)}"

    return Field(check, {"enum": [*words]})


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
    return next((problem for tool in value if (problem := _tool_problem(tool))), None)


def _tool_problem(tool: Any) -> str | None:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if isinstance(kind, str) and _HOSTED.search(kind):
        return f"{kind} needs a server that runs it, and there is none here; remove it, or use a function that you run yourself"
    if not isinstance(tool, dict) or (kind in (None, "function") and not _is_named(tool)):
        return f'each must be like {{"type": "function", "function": {{"name": …}}}}, got {show(tool)}'
    return grammar.schema_problem(tool)


def _is_named(tool: dict[str, Any]) -> bool:
    """Whether a function has a name, in the form of chat or in that of responses and Workers AI."""
    return any(isinstance(each, dict) and _is_word(each.get("name")) for each in (tool, tool.get("function")))


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _tool_choice(value: Any) -> str | None:
    if value in _CHOICES or (isinstance(value, dict) and isinstance(value.get("type"), str)):
        return None
    return f'must be {", ".join(_CHOICES)} or an object like {{"type": "function", …}}, got {show(value)}'


def _logit_bias(value: Any) -> str | None:
    if isinstance(value, dict) and all(_TOKEN_ID.search(key) and _is_number(bias) for key, bias in value.items()):
        return None
    return f'must be an object of token ids and numbers like {{"50256": -100}}, got {show(value)}'


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _options(value: Any) -> str | None:
    if isinstance(value, dict) and isinstance(value.get("rejectIfBusy", False), bool):
        return None
    return f"must be an object whose rejectIfBusy is true or false, got {show(value)}"


# Tools that OpenAI runs itself; some names end in a date.
_HOSTED = re.compile(
    "^(code_interpreter|container|web_search|file_search|image_generation|computer_use|local_shell|mcp)"
)
_CHOICES = ("none", "auto", "required")
_TOKEN_ID = re.compile("^[0-9]+$")
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
_HOSTED_TOOL = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"type": "string", "pattern": _HOSTED.pattern}},
}
_NAMED = {"type": "object", "required": ["name"], "properties": {"name": _WORD}}
_OTHER_TOOL = {"required": ["type"], "properties": {"type": {"not": {"enum": ["function", None]}}}}
_TOOL = {
    "type": "object",
    "not": _HOSTED_TOOL,
    "anyOf": [_NAMED, {"required": ["function"], "properties": {"function": _NAMED}}, _OTHER_TOOL],
}
_TYPED = {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}}
_OPTIONS = {"type": "object", "properties": {"rejectIfBusy": {"type": "boolean"}}}

FIELDS: Mapping[str, Field] = {
    "temperature": number(0, 5),
    "top_p": number(0, 1),
    "top_k": number(-1, 1_000_000, whole=True),
    "min_p": number(0, 1),
    "seed": number(-(2**63), 2**63 - 1, whole=True),
    "n": number(1, 16, whole=True),
    "min_tokens": number(0, MOST_TOKENS, whole=True),
    "ignore_eos": _BOOLEAN,
    "repetition_penalty": number(0.01, 2),
    "frequency_penalty": number(-2, 2),
    "presence_penalty": number(-2, 2),
    "top_logprobs": number(0, 20, whole=True),
    "logprobs": _one_of((bool, int), "true or false", "boolean", "integer"),
    "stop": Field(_stop, _STOP),
    "raw": _BOOLEAN,
    "stream": _BOOLEAN,
    "response_format": Field(_response_format, _RESPONSE_FORMAT),
    "structured_outputs": Field(grammar.structured_problem, {"type": "object"}),
    "tools": Field(_tools, {"type": "array", "items": _TOOL}),
    "tool_choice": Field(_tool_choice, {"anyOf": [{"enum": [*_CHOICES]}, _TYPED]}),
    "logit_bias": Field(
        _logit_bias,
        {
            "type": "object",
            "propertyNames": {"pattern": _TOKEN_ID.pattern},
            "additionalProperties": {"type": "number"},
        },
    ),
    "user": _STRING,
    "external_reference": _STRING,
    "session_id": _STRING,
    FLAG: _BOOLEAN,
    "service_tier": _word("auto", "default", "flex", "priority", "scale"),
    "options": Field(_options, _OPTIONS),
}


def misspelt(item: Mapping[str, Any], wanted: Sequence[str]) -> str:
    """What an item without any of these fields may have instead: "; promt: did you mean prompt?". Empty: nothing like them."""
    for name in list(item)[:_MOST_NAMES]:
        if name not in FIELDS and (near := get_close_matches(name[:_SHOWN], wanted, 1, _NEAR)):
            return f"; {show(name)}: did you mean {near[0]}?"
    return ""


def show(value: Any) -> str:
    """A value in the form that error messages quote."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    text = "an empty string" if value == "" else repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
