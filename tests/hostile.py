"""Hostile inputs for a regular expression: what it is made of, repeated, so that a search goes on for long and then fails."""

import re
from collections.abc import Iterator
from functools import partial
from itertools import product
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from tests.linear import growth, seconds

_CATEGORIES = {sre.CATEGORY_DIGIT: "0", sre.CATEGORY_SPACE: " ", sre.CATEGORY_WORD: "a"}
_PROBE = 300  # repetitions; of the input that takes longest, the growth counts
_MOST_PARTS = 7


def worst_growth(pattern: re.Pattern[Any], *, anchored: bool = False) -> float:
    """By what factor a search takes longer for twice the input, at its worst that we know to make.

    `anchored`: it begins at the beginning of a text only.
    """
    search = partial(_match if anchored else _search, pattern)
    hostile = max(_hostile(pattern), key=lambda parts: seconds(search, _made(pattern, *parts, _PROBE)))
    return growth(search, partial(_made, pattern, *hostile))


def _search(pattern: re.Pattern[Any], text: Any) -> None:
    for _ in pattern.finditer(text):
        pass
    pattern.fullmatch(text)


def _match(pattern: re.Pattern[Any], text: Any) -> None:
    pattern.match(text)
    pattern.fullmatch(text)


def _made(pattern: re.Pattern[Any], begin: str, unit: str, end: str, n: int) -> Any:
    text = begin + unit * n + end
    return text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text


def _hostile(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """Begin, repeated unit and end of inputs."""
    source = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    known = list(dict.fromkeys(_parts(_parser.parse(source, pattern.flags & ~re.DEBUG))))
    parts = known[:_MOST_PARTS] or ["a"]
    for begin, unit in product(("", "".join(parts)), (*parts, *map("".join, product(parts, parts)), "".join(parts))):
        yield begin, unit, "\0"


def _parts(parsed: Any) -> Iterator[str]:
    """Texts that stand in an expression: its literals, neighbouring ones together, and a character of each class."""
    text = ""
    for kind, given in parsed:
        if kind is sre.LITERAL:
            text += chr(given)
            continue
        if text:
            yield text
        text = ""
        yield from _of(kind, given)
    if text:
        yield text


def _of(kind: Any, given: Any) -> Iterator[str]:
    match kind:
        case sre.IN:
            yield from (found for each in given if (found := _member(*each)))
        case sre.ANY:
            yield "x"
        case sre.BRANCH:
            for branch in given[1]:
                yield from _parts(branch)
        case sre.SUBPATTERN | sre.ASSERT | sre.ASSERT_NOT | sre.MAX_REPEAT | sre.MIN_REPEAT:
            yield from _parts(given[-1])


def _member(kind: Any, given: Any) -> str:
    match kind:
        case sre.LITERAL:
            return chr(given)
        case sre.RANGE:
            return chr(given[0])
        case sre.CATEGORY:
            return _CATEGORIES.get(given, "x")
    return "x"  # of a negated class
