"""Conditions: `not valid or json.confidence < 0.7`. Pure.

Paths, literals, comparisons (== != < <= > >=), `in` a list, a text or an object's names, and, or, not, parentheses. Null and
what is missing are the same. Values of different kinds are not equal, and none is below another. Lists and objects are equal to
nothing; ask for their elements with `in`. As a condition of its own, a value holds unless it is missing, false, 0 or empty.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from app.flows.language import (
    MISSING,
    Fields,
    LanguageError,
    Literal,
    Path,
    Reader,
    read_literal,
    read_path,
    resolve,
)

LONGEST, DEEPEST = 1000, 32

_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SIGNS = ("==", "!=", *_ORDERS)


@dataclass(frozen=True, slots=True)
class OneOf:
    """A list of literals, right of `in`."""

    values: tuple[Literal, ...]

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.values))}]"


Value = Literal | Path


@dataclass(frozen=True, slots=True)
class Compare:
    """Two values and the sign between them, which is one of == != < <= > >=."""

    left: Value
    sign: str
    right: Value

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right}"


@dataclass(frozen=True, slots=True)
class In:
    """Whether the left is an element of a list, a part of a text, or a name of an object."""

    left: Value
    right: Value | OneOf

    def __str__(self) -> str:
        return f"{self.left} in {self.right}"


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    part: "Condition"

    def __str__(self) -> str:
        return f"not {_enclosed(self.part, All, AnyOf)}"


@dataclass(frozen=True, slots=True)
class All:
    """Two or more conditions joined by `and`."""

    parts: "tuple[Condition, ...]"

    def __str__(self) -> str:
        return " and ".join(_enclosed(each, All, AnyOf) for each in self.parts)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Two or more conditions joined by `or`."""

    parts: "tuple[Condition, ...]"

    def __str__(self) -> str:
        return " or ".join(_enclosed(each, AnyOf) for each in self.parts)


Condition = Value | Compare | In | Not | All | AnyOf


def _enclosed(part: Condition, *kinds: type) -> str:
    return f"({part})" if isinstance(part, kinds) else str(part)


def parse(text: str) -> Condition:
    """The condition of a text. Raises LanguageError."""
    if len(text) > LONGEST:
        raise LanguageError(f"a condition has at most {LONGEST:,} characters, this one {len(text):,}", LONGEST + 1)
    reader = Reader(text)
    condition = _any_of(reader, 1)
    if reader.next.kind != "end":
        raise reader.unexpected("join conditions with and or or")
    return condition


def _any_of(reader: Reader, depth: int) -> Condition:
    parts = [_all(reader, depth)]
    while reader.skip("or"):
        parts.append(_all(reader, depth))
    return AnyOf(tuple(parts)) if len(parts) > 1 else parts[0]


def _all(reader: Reader, depth: int) -> Condition:
    parts = [_not(reader, depth)]
    while reader.skip("and"):
        parts.append(_not(reader, depth))
    return All(tuple(parts)) if len(parts) > 1 else parts[0]


def _not(reader: Reader, depth: int) -> Condition:
    if depth > DEEPEST:
        raise LanguageError(f"nested deeper than {DEEPEST} levels; write less parentheses and not", reader.next.column)
    if reader.skip("not"):
        return Not(_not(reader, depth + 1))
    if reader.skip("("):
        inner = _any_of(reader, depth + 1)
        reader.need(")", "close the parenthesis with )")
        return inner
    return _test(reader)


def _test(reader: Reader) -> Condition:
    left = _value(reader)
    found: Condition = left
    if reader.at(*_SIGNS):
        found = Compare(left, reader.take().text, _value(reader))
    elif reader.skip("in"):
        found = In(left, _one_of(reader) if reader.at("[") else _value(reader))
    elif reader.skip("not"):
        reader.need("in", "write not in")
        found = Not(In(left, _one_of(reader) if reader.at("[") else _value(reader)))
    if reader.at("in", *_SIGNS):
        raise reader.unexpected("compare two values at a time, and join comparisons with and")
    return found


def _one_of(reader: Reader) -> OneOf:
    reader.take()
    values = [read_literal(reader)]
    while reader.skip(","):
        values.append(read_literal(reader))
    reader.need("]", "separate the values with commas, and close the list with ]")
    return OneOf(tuple(values))


def _value(reader: Reader) -> Value:
    if reader.next.kind in ("text", "number") or reader.at("true", "false", "null"):
        return read_literal(reader)
    return read_path(reader)


def paths(condition: Condition) -> Iterator[Path]:
    """The paths that a condition reads."""
    match condition:
        case Path():
            yield condition
        case Compare(left, _, right) | In(left, right):
            yield from (each for each in (left, right) if isinstance(each, Path))
        case Not(part):
            yield from paths(part)
        case All(parts) | AnyOf(parts):
            for part in parts:
                yield from paths(part)


def holds(condition: Condition, scope: Fields) -> bool:
    """Whether a condition holds. It never fails."""
    match condition:
        case Not(part):
            return not holds(part, scope)
        case All(parts):
            return all(holds(each, scope) for each in parts)
        case AnyOf(parts):
            return any(holds(each, scope) for each in parts)
    return _holds(condition, scope)


def _holds(condition: Value | Compare | In, scope: Fields) -> bool:
    match condition:
        case Compare(left, sign, right):
            return _compared(_found(left, scope), sign, _found(right, scope))
        case In(left, OneOf(values)):
            value = _found(left, scope)
            return any(_same(value, each.value) for each in values)
        case In(left, right):
            return _contains(_found(cast(Value, right), scope), _found(left, scope))
    return _true(_found(condition, scope))


def _found(value: Value, scope: Fields) -> Any:
    found = value.value if isinstance(value, Literal) else resolve(value, scope)
    return None if found is MISSING else found


def _true(value: Any) -> bool:
    return any(map(_true, value)) if isinstance(value, tuple) else value is not MISSING and bool(value)


def _compared(left: Any, sign: str, right: Any) -> bool:
    if sign in ("==", "!="):
        return _same(left, right) is (sign == "==")
    both_numbers = _number(left) and _number(right)
    return (both_numbers or (isinstance(left, str) and isinstance(right, str))) and _ORDERS[sign](left, right)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same(left: Any, right: Any) -> bool:
    if _number(left) and _number(right):
        return bool(left == right)
    return type(left) is type(right) and isinstance(left, (str, bool, type(None))) and left == right


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(whole, str):
        return isinstance(part, str) and part in whole
    if isinstance(whole, dict):
        return isinstance(part, str) and part in whole
    return isinstance(whole, (list, tuple)) and any(_same(None if each is MISSING else each, part) for each in whole)
