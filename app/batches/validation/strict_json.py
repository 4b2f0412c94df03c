"""JSON without ambiguity. Pure.

orjson refuses NaN, Infinity and lone surrogates. This module also refuses duplicate keys (orjson keeps the last one), NUL
characters (PostgreSQL's text cannot store them), deeper nesting than any request needs, and integers that it would
round.
"""

import json
import math
import re
from contextlib import suppress
from typing import Any

import orjson

MAX_DEPTH = 64

_LONG = b"0" * 19  # digits of the shortest integer that needs more than 64 bits
_DIGITS = bytes(48 if 48 <= byte < 58 else 32 for byte in range(256))
_INTEGERS = range(-(1 << 63), 1 << 64)
_KEY_END = re.compile(rb'"\s*:')


class JsonError(ValueError):
    """The text is not accepted as JSON. The message has the problem and, where known, the place."""


class NumberTooLarge(JsonError):
    """A number that would reach the engine as another one. `field`: where it is."""

    def __init__(self, field: str) -> None:
        where = f"{field}: " if field else ""
        super().__init__(
            f"{where}the number needs more than 64 bits and would be rounded; send a smaller one, or a string"
        )
        self.field = field


def loads(raw: bytes) -> Any:
    """Parse UTF-8 JSON strictly. Raises JsonError."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        if "infinity" in error.msg and _brackets(raw) <= MAX_DEPTH:
            with suppress(json.JSONDecodeError):  # it has another fault, too
                _check_numbers(raw)
        raise JsonError(_explain(raw, error)) from None
    nul = b"\\u0000" in raw
    keys = _walk(value, look_for_nul=nul) if nul or _brackets(raw) > MAX_DEPTH else _keys(value)
    # Each key ends in `":`. Text in strings can only raise the count, so equal counts prove that no key was dropped.
    if len(_KEY_END.findall(raw)) != keys:
        json.loads(raw, object_pairs_hook=_refuse_duplicates)
    if _LONG in raw.translate(_DIGITS):
        _check_numbers(raw)
    return value


def _brackets(raw: bytes) -> int:
    return raw.count(b"{") + raw.count(b"[")


class _TooLarge:
    """In the place of a number that orjson would round, or refuses."""


def _integer(text: str) -> _TooLarge | None:
    return _TooLarge() if len(text) > len(_LONG) + 2 or int(text) not in _INTEGERS else None


def _float(text: str) -> _TooLarge | None:
    return _TooLarge() if math.isinf(float(text)) else None


def _check_numbers(raw: bytes) -> None:
    """Raise NumberTooLarge for the first number of a text that is one."""
    _check_number(json.loads(raw, parse_int=_integer, parse_float=_float), "")


def _check_number(value: Any, field: str) -> None:
    if isinstance(value, dict):
        for name, each in value.items():
            _check_number(each, f"{field}.{name}" if field else name)
    elif isinstance(value, list):
        for place, each in enumerate(value):
            _check_number(each, f"{field}[{place}]")
    elif isinstance(value, _TooLarge):
        raise NumberTooLarge(field)


def not_utf8(raw: bytes) -> str:
    """Which byte keeps a text from being UTF-8, and where it is; empty if it is UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode()
        place = _place(raw, before.count("\n") + 1, len(before) - before.rfind("\n"))
        return f"the byte 0x{raw[error.start]:02x} at {place} is not UTF-8"
    return ""


def _place(raw: bytes, line: int, column: int) -> str:
    """Text of one line may itself be a line of a file, so it has no line numbers."""
    return f"line {line} column {column}" if b"\n" in raw.strip() else f"column {column}"


def _keys(value: Any) -> int:
    """The number of keys in a value that has too few brackets to be nested deeply. It takes most of the time of a submit."""
    keys = 0
    if type(value) is dict:
        keys = len(value)
        value = value.values()
    elif type(value) is not list:
        return 0
    for node in value:
        if type(node) is dict or type(node) is list:
            keys += _keys(node)
    return keys


def _walk(value: Any, *, look_for_nul: bool) -> int:
    """The number of keys in all objects. Raises JsonError for deep nesting and, with `look_for_nul`, for NUL characters."""
    keys = 0
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        deeper: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                keys += len(node)
                deeper += node.values()
                if look_for_nul and any("\0" in key for key in node):
                    raise JsonError("a key contains the character \\u0000, which cannot be stored")
            elif isinstance(node, list):
                deeper += node
            elif look_for_nul and isinstance(node, str) and "\0" in node:
                raise JsonError("a string contains the character \\u0000, which cannot be stored; remove it")
        if not deeper:
            return keys
        level = deeper
    raise JsonError(f"nested deeper than {MAX_DEPTH} levels")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, value in pairs:
        if name in seen:
            raise JsonError(f"the key {name!r} is twice in one object; keep one")
        seen[name] = value
    return seen


def _explain(raw: bytes, error: orjson.JSONDecodeError) -> str:
    where = _place(raw, error.lineno, error.colno)
    if raw.startswith(b"\xef\xbb\xbf"):
        return "not valid JSON: it begins with a byte order mark; remove it"
    if problem := not_utf8(raw):
        return f"not valid JSON: {problem}"
    for word in (b"NaN", b"Infinity", b"-Infinity"):
        if raw.startswith(word, error.pos) or raw.startswith(word, max(0, error.pos - 1)):
            return f"{word.decode()} is not JSON ({where}); send a number or null"
    return f"not valid JSON: {error.msg} ({where})"
