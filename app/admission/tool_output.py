"""Shortens what tools have answered, where a request asks for it, after redaction: no cut hides a value, or is in a placeholder.
Pure.

JSON loses nulls and white space, and keeps its numbers as they are written; long lists, tables, logs and texts keep head and
tail; base64 goes. Each cut says what was left out. The same output always becomes the same text, so that prompts keep their
common beginning.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import orjson

from app.detection.shape import outside

FLAG = "normalize_tool_output"  # the field of a request
HEAD_ROWS, TAIL_ROWS = 36, 9
HEAD_LINES, TAIL_LINES = 200, 100
HEAD_TEXT, TAIL_TEXT = 6_000, 2_000  # characters of a text within JSON, or of a line
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_BASE64 = re.compile(r"(?:data:[\w.+/-]*;base64,|(?<![A-Za-z0-9+/]))[A-Za-z0-9+/]{512,}={0,2}")
_MARK = "[slackwater: "
_WRITTEN = orjson.Fragment  # of a number


def shortened(item: Any) -> Any:
    """The request with short outputs of tools, if it asks for it; else itself. Of chat, and of the Responses API."""
    if not isinstance(item, dict) or item.get(FLAG) is not True:
        return item
    found = dict(item)
    if isinstance(item.get("messages"), list):
        found["messages"] = [_of_message(each) for each in item["messages"]]
    if isinstance(item.get("input"), list):
        found["input"] = of_items(item["input"])
    return found


def of_items(items: Sequence[Any]) -> list[Any]:
    """Input items of the Responses API with short outputs of tools."""
    return [
        _short_in(each, "output") if isinstance(each, dict) and each.get("type") in _OUTPUTS else each for each in items
    ]


def _of_message(message: Any) -> Any:
    return _short_in(message, "content") if isinstance(message, dict) and message.get("role") == "tool" else message


def _short_in(owner: dict[str, Any], field: str) -> dict[str, Any]:
    """The object with a shorter text in this field, or shorter parts."""
    content = owner.get(field)
    if isinstance(content, str):
        return {**owner, field: short_text(content)}
    if isinstance(content, list):
        return {**owner, field: [_of_part(part) for part in content]}
    return owner


def _of_part(part: Any) -> Any:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return {**part, "text": short_text(part["text"])}
    return part


def short_text(text: str) -> str:
    """One output, shortened; itself where that would be no shorter."""
    found = _json(text) if text.lstrip()[:1] in ("{", "[") and not text.startswith(_MARK) else None
    short = _lines(text) if found is None else found
    return short if len(short) < len(text) else text


def _json(text: str) -> str | None:
    try:
        value = json.loads(text, parse_int=_WRITTEN, parse_float=_WRITTEN, parse_constant=_WRITTEN)
        return orjson.dumps(_value(value)).decode()
    except (ValueError, orjson.JSONEncodeError, RecursionError):
        return None


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _value(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_value(each) for each in _ends(value, HEAD_ROWS, TAIL_ROWS, "rows")]
    return _text(value) if isinstance(value, str) else value


def _ends(rows: list[Any], head: int, tail: int, what: str) -> list[Any]:
    """Head and tail with a mark between them. A list that has been cut is not cut again."""
    if len(rows) <= head + tail + 1:
        return rows
    return [*rows[:head], _left_out(len(rows) - head - tail, len(rows), what), *rows[-tail:]]


def _left_out(count: int, of: int, what: str) -> str:
    return f"{_MARK}{count:,} of {of:,} {what} left out]"


def _text(text: str) -> str:
    text = _BASE64.sub(lambda found: f"{_MARK}{len(found[0]):,} characters of base64 left out]", text)
    if len(text) <= HEAD_TEXT + TAIL_TEXT + 80:
        return text
    head, tail = outside(text, HEAD_TEXT), outside(text, len(text) - TAIL_TEXT)
    return f"{text[:head]}{_left_out(tail - head, len(text), 'characters')}{text[tail:]}"


def _lines(text: str) -> str:
    """A log, a table or a text: equal neighbours once, then head and tail."""
    lines: list[str] = []
    repeated = 0
    for line in [*text.splitlines(), None]:
        if line is not None and lines and line == lines[-1] and line:
            repeated += 1
            continue
        if repeated > 1:
            lines.append(f"{_MARK}{repeated:,} repetitions left out]")
        elif repeated:
            lines.append(lines[-1])
        repeated = 0
        if line is not None:
            lines.append(line)
    return "\n".join(_text(line) for line in _ends(lines, HEAD_LINES, TAIL_LINES, "lines"))
