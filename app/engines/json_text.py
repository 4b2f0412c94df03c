"""Sets members of a JSON object in its text, so that every other byte stays as it was written. Pure.

Whoever parses and writes an answer again changes its numbers: `1.10` becomes `1.1`, and integers beyond 64 bits become doubles.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

import orjson

# Finds where a value ends. Its numbers are not needed, and may have more digits than Python reads.
_VALUE = json.JSONDecoder(parse_int=len, parse_float=len, strict=False).raw_decode
# What stands before a name and before its value.
_NEXT, _COLON = re.compile(r"[ \t\n\r,]*"), re.compile(r"[ \t\n\r:]*")

_Span = tuple[int, int]


class JsonText:
    """A JSON object, which must be valid, as its text. `path`: the names that lead to a value in it, in ASCII; none: the whole.

    Of members with the same name, the last one counts, as for those who read it.
    """

    def __init__(self, text: bytes) -> None:
        self._text = text.decode("latin-1")  # a character for each byte; those of other alphabets are only in strings
        self._spans: dict[tuple[str, ...], _Span] = {}
        self._walked: set[tuple[str, ...]] = set()
        self._edits: list[tuple[int, int, str]] = []

    def get(self, *path: str) -> bytes | None:
        """The text of the value at this path; None if there is none."""
        span = self._span(path)
        return None if span is None else self._text[slice(*span)].encode("latin-1")

    def set(self, fields: Mapping[str, Any], *path: str) -> Self:
        """Set these members of the object at `path`, which may be there. No member may be set twice. Raises LookupError if there
        is no such object.
        """
        span = self._span(path)
        if span is None or not self._text.startswith("{", span[0]):
            raise LookupError(f"no object at {path}")
        added = []
        for name, value in fields.items():
            text = orjson.dumps(value).decode("latin-1")
            if self._text.find(f'"{name}"', *span) >= 0 and (present := self._span((*path, name))) is not None:
                self._edits.append((*present, text))
            else:
                added.append(f'"{name}":{text}')
        if added:
            end = span[0] + len(self._text[slice(*span)].rstrip()) - 1
            before = "" if self._text[span[0] + 1 : end].isspace() or span[0] + 1 == end else ","
            self._edits.append((end, end, before + ",".join(added)))
        return self

    def __bytes__(self) -> bytes:
        """The text with what was set."""
        at = 0
        pieces: list[str] = []
        for begin, end, text in sorted(self._edits):
            pieces += (self._text[at:begin], text)
            at = end
        return "".join((*pieces, self._text[at:])).encode("latin-1")

    def _span(self, path: tuple[str, ...]) -> _Span | None:
        if path in self._spans:
            return self._spans[path]
        if not path:
            self._spans[path] = _behind(_NEXT, self._text, 0), len(self._text)
        elif len(path) == 1 and (span := _seen_from_the_end(self._text, path[0])) is not None:
            self._spans[path] = span
        elif path[:-1] not in self._walked and (owner := self._span(path[:-1])) is not None:
            self._walked.add(path[:-1])
            self._spans |= {(*path[:-1], name): span for name, span in _members(self._text, owner[0]).items()}
        return self._spans.get(path)


def _seen_from_the_end(text: str, name: str) -> _Span | None:
    """Where the value of a member of the whole is; None: it may be somewhere. Engines write the usage last, behind all texts."""
    at = text.rfind(f'"{name}"')
    if at < 0 or text[at - 1] == "\\":  # within a string
        return None
    with suppress(ValueError):
        begin = _behind(_COLON, text, at + len(name) + 2)
        end = _VALUE(text, begin)[1]
        orjson.loads('{"":0' + text[end:])  # what follows ends one object, so the value is in the outermost one
        return begin, end
    return None


def _members(text: str, at: int) -> dict[str, _Span]:
    """Where the values are of the object that begins here; none of what is no object."""
    values: dict[str, _Span] = {}
    if not text.startswith("{", at):
        return values
    end = at + 1
    while text[at := _behind(_NEXT, text, end)] == '"':
        name, at = _VALUE(text, at)
        begin = _behind(_COLON, text, at)
        end = _VALUE(text, begin)[1]
        values[name] = begin, end
    return values


def _behind(between: re.Pattern[str], text: str, at: int) -> int:
    found = between.match(text, at)
    return found.end() if found else at
