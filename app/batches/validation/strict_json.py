"""JSON without ambiguity. Pure.

orjson refuses NaN, Infinity and lone surrogates. This module also refuses duplicate keys (orjson keeps the last one), NUL
characters (PostgreSQL's text cannot store them) and deeper nesting than any request needs.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import orjson

from app.batches.validation import not_json
from app.batches.validation.not_json import DEEPEST

_KEY_END = re.compile(rb'"\s*:')
_SHOWN = 60  # characters of a place


class JsonError(ValueError):
    """The text is not accepted as JSON. `reason`: the problem, its place where that is known, and how to correct it."""

    def __init__(self, reason: str, *, invalid: bool = False) -> None:
        super().__init__(f"not valid JSON: {reason}" if invalid else reason)
        self.reason = reason


def loads(raw: bytes) -> Any:
    """Parse UTF-8 JSON strictly. Raises JsonError."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise JsonError(not_json.reason(raw, error), invalid=True) from None
    nul, brackets = b"\\u0000" in raw, raw.count(b"{") + raw.count(b"[")
    keys = _walk(value, look_for_nul=nul) if nul or brackets > DEEPEST else _keys(value)
    # Each key ends in `":`. Text in strings can only raise the count, so equal counts prove that no key was dropped.
    if len(_KEY_END.findall(raw)) != keys:
        json.loads(raw, object_pairs_hook=_refuse_duplicates)
    return value


def problem(raw: bytes) -> str:
    """The reason of `loads` for refusing a text; empty: it accepts it."""
    try:
        loads(raw)
    except JsonError as error:
        return error.reason
    return ""


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
    for _ in range(DEEPEST + 1):
        deeper: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                keys += len(node)
                deeper += node.values()
                if look_for_nul and any("\0" in key for key in node):
                    raise JsonError("a key contains the character \\u0000, which cannot be stored; remove it")
            elif isinstance(node, list):
                deeper += node
            elif look_for_nul and isinstance(node, str) and "\0" in node:
                where = _place(value, lambda found, _: isinstance(found, str) and "\0" in found)
                raise JsonError(f"a string contains the character \\u0000, which cannot be stored; remove it{where}")
        if not deeper:
            return keys
        level = deeper
    where = _place(value, lambda _, depth: depth > DEEPEST)
    raise JsonError(f"nested deeper than {DEEPEST} levels, the most that are accepted{where}")


def _place(value: Any, wrong: Callable[[Any, int], bool]) -> str:
    """Where the first value is of which this holds, given its depth: " (messages[0].content)". Empty: it is the whole."""
    left: list[tuple[Any, int, str]] = [(value, 0, "")]
    while left:
        node, depth, path = left.pop()
        if wrong(node, depth):
            shown = path.removeprefix(".")
            return f" ({shown[:_SHOWN]}{'…' if len(shown) > _SHOWN else ''})" if path else ""
        if isinstance(node, dict):
            left += [(inner, depth + 1, f"{path}.{name}"[: _SHOWN + 2]) for name, inner in reversed(node.items())]
        elif isinstance(node, list):
            left += [(inner, depth + 1, f"{path}[{n}]"[: _SHOWN + 2]) for n, inner in reversed([*enumerate(node)])]
    return ""


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, value in pairs:
        if name in seen:
            raise JsonError(f"the key {name!r} is twice in one object; keep one")
        seen[name] = value
    return seen
