"""JSON without ambiguity. Pure.

orjson refuses NaN, Infinity and lone surrogates. This module also refuses duplicate keys (orjson keeps the last one), NUL
characters (PostgreSQL's text cannot store them), deeper nesting than any request needs, and numbers of which it would
make others: integers beyond 64 bits, decimals of more digits than a double has, and what is so near to 0 that it becomes 0.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from decimal import Context, Decimal
from typing import Any

import orjson

from app.batches.validation import not_json
from app.batches.validation.not_json import DEEPEST

_EXACT = 17  # digits; a decimal of so many is the spelling of some double
_LONG = b"0" * (_EXACT + 1)  # what other numbers have at least, with their point
_TINY = b"0e-000"  # the shortest exponent of other numbers that become 0; both may stand in a string, too
_DIGITS, _KEPT = b"0123456789.", {ord("e"): b"e", ord("E"): b"e", ord("-"): b"-"}
_SHAPES = b"".join(b"0" if byte in _DIGITS else _KEPT.get(byte, b" ") for byte in range(256))
_INTEGERS = range(-(1 << 63), 1 << 64)
_MOST_DIGITS = 21  # of these, and one more
_KEY_END = re.compile(rb'"\s*:')
_SHOWN = 60  # characters of a place


class JsonError(ValueError):
    """The text is not accepted as JSON. `reason`: the problem, its place where that is known, and how to correct it. `invalid`:
    it is none.
    """

    def __init__(self, reason: str, *, invalid: bool = False) -> None:
        super().__init__(f"not valid JSON: {reason}" if invalid else reason)
        self.reason, self.invalid = reason, invalid


class NumberUnfit(JsonError):
    """A number that would reach the engine as another one. `field`: where it is. `why`: and what to send instead."""

    def __init__(self, field: str, why: str) -> None:
        where = f"{field}: " if field else ""
        super().__init__(f"{where}the number {why}, or a string")
        self.field = field


def loads(raw: bytes) -> Any:
    """Parse UTF-8 JSON strictly. Raises JsonError."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        if "infinity" in error.msg and _brackets(raw) <= DEEPEST:
            with suppress(json.JSONDecodeError):  # it has another fault, too
                _check_numbers(raw)
        reason = not_json.reason(raw, error)
        raise JsonError(reason, invalid=not reason.startswith(not_json.TOO_DEEP)) from None
    nul, floats = b"\\u0000" in raw, [value] if type(value) is float else []
    keys = _walk(value, floats, look_for_nul=nul) if nul or _brackets(raw) > DEEPEST else _keys(value, floats)
    # Each key ends in `":`. Text in strings can only raise the count, so equal counts prove that no key was dropped.
    if len(_KEY_END.findall(raw)) != keys:
        _refuse_duplicates(json.loads(raw, object_pairs_hook=_object))
    if floats:
        shapes = raw.translate(_SHAPES)
        if _LONG in shapes or _TINY in shapes:
            _check_numbers(raw)
    return value


def _brackets(raw: bytes) -> int:
    return raw.count(b"{") + raw.count(b"[")


class _Unfit(str):
    """In the place of a number that orjson would round, or refuses: why, and what to send instead."""


_TOO_LARGE = _Unfit("does not fit into 64 bits; send a smaller one")
_TOO_SMALL = _Unfit("does not fit into 64 bits; send 0")
_TOO_FINE = _Unfit(f"has more digits than a double; send at most {_EXACT}")


def _integer(text: str) -> _Unfit | None:
    return _TOO_LARGE if len(text) > _MOST_DIGITS or int(text) not in _INTEGERS else None


def _float(text: str) -> _Unfit | None:
    value, digits = float(text), text.lower().partition("e")[0].replace(".", "").strip("-0")
    if math.isinf(value):
        return _TOO_LARGE
    if value == 0:
        return _TOO_SMALL if digits else None
    if len(digits) <= _EXACT or Context(prec=len(digits)).create_decimal_from_float(value) == Decimal(text):
        return None  # a double, as it is or rounded to as many digits
    return _TOO_FINE


def _check_numbers(raw: bytes) -> None:
    """Raise NumberUnfit for the first number of a text that is one."""
    _check_number(json.loads(raw, parse_int=_integer, parse_float=_float), "")


def _check_number(value: Any, field: str) -> None:
    if isinstance(value, dict):
        for name, each in value.items():
            _check_number(each, f"{field}.{name}" if field else name)
    elif isinstance(value, list):
        for place, each in enumerate(value):
            _check_number(each, f"{field}[{place}]")
    elif isinstance(value, _Unfit):
        raise NumberUnfit(field, value)


def _keys(value: Any, floats: list[float]) -> int:
    """The number of keys in a value that has too few brackets to be nested deeply, whose floats are added to `floats`. It takes
    most of the time of a submit.
    """
    keys = 0
    if type(value) is dict:
        keys = len(value)
        value = value.values()
    elif type(value) is not list:
        return 0
    for node in value:
        kind = type(node)
        if kind is dict or kind is list:
            keys += _keys(node, floats)
        elif kind is float:
            floats.append(node)
    return keys


def _walk(value: Any, floats: list[float], *, look_for_nul: bool) -> int:
    """The same of any value. Raises JsonError for deep nesting and, with `look_for_nul`, for NUL characters."""
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
            elif isinstance(node, float):
                floats.append(node)
            elif look_for_nul and isinstance(node, str) and "\0" in node:
                where = _place(value, lambda found, _: isinstance(found, str) and "\0" in found)
                raise JsonError(f"a string contains the character \\u0000, which cannot be stored; remove it{where}")
        if not deeper:
            return keys
        level = deeper
    where = _place(value, lambda _, depth: depth > DEEPEST)
    raise JsonError(f"{not_json.TOO_DEEP}{where}")


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


class _Twice(dict[str, Any]):
    """An object that has a key twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Twice(_twice=Counter(name for name, _ in pairs).most_common(1)[0][0])


def _refuse_duplicates(value: Any) -> None:
    """Raise JsonError for the first key that stands twice in an object."""
    names: list[str] = []

    def wrong(found: Any, _: int) -> bool:
        names.extend([found["_twice"]] if isinstance(found, _Twice) else [])
        return bool(names)

    where = _place(value, wrong)
    if names:
        raise JsonError(f"the key {names[0]!r} occurs twice in one object; keep one{where}")
