"""Which tool call of a streamed choice a part belongs to: one rule for all who read streams. Pure.

Callers put calls together by `index`, from 0 in the order in which they begin. Not every server sends one, or another one for
each call, or ids. So a part goes on, as far as it can,

1. the call that its index was last used for, if that has its id,
2. the call with its id, unless it is named and its index is new,
3. the call that its index was last used for,
4. without an index the last call or, of several parts in one chunk that say nothing, the one at its place.

Otherwise it begins a call. A part with a name cannot go on a call that this chunk has named, or whose arguments have begun: but
where it has the same name, and those arguments are not yet a whole JSON value, the server says the name with each part. Callers
join what they get, so a name that is said again is taken out, unless an id shows what it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson


class CallIndices:
    """The indices of the calls in the chunks of one answer, in order."""

    def __init__(self) -> None:
        self._choices: dict[int, _Calls] = {}

    def correct(self, chunk: Mapping[str, Any]) -> bool:
        """Give every part the index of its call. Returns whether one had another."""
        wrong = False
        for place, choice in enumerate(chunk.get("choices") or ()):
            if parts := (choice.get("delta") or {}).get("tool_calls"):
                calls = self._choices.setdefault(place if choice.get("index") is None else choice["index"], _Calls())
                wrong |= calls.correct(parts)
        return wrong


@dataclass(slots=True)
class _Call:
    """What has come of a call. `begun`: something of its `arguments` or its input. `chunk`: the one that named it last."""

    id: object = None
    name: str = ""
    begun: bool = False
    arguments: list[str] = field(default_factory=list)
    chunk: int = -1

    @property
    def cut(self) -> bool:
        """Whether its arguments are the beginning of a JSON value."""
        text = "".join(self.arguments).rstrip()
        if not text.endswith("}"):
            return bool(text)
        try:
            orjson.loads(text)
        except ValueError:
            return True
        return False


class _Calls:
    """The calls of one choice."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._at: dict[int, int] = {}  # the call that each index was last used for
        self._chunk = 0

    def correct(self, parts: Sequence[dict[str, Any]]) -> bool:
        """Give the parts of one chunk the indices of their calls. Returns whether one had another."""
        wrong = False
        self._chunk += 1
        several = sum(map(_says_nothing, parts)) > 1
        for place, part in enumerate(parts):
            given = part.get("index")
            index = given if type(given) is int else None
            number = self._of(part, index, place if several else len(self._calls) - 1)
            wrong |= self._take(self._calls[number], part)
            self._at[number if index is None else index] = number
            if index != number:
                part["index"], wrong = number, True
        return wrong

    def _of(self, part: Mapping[str, Any], index: int | None, place: int) -> int:
        its_id, name = part.get("id") or None, _name(part)
        number = next((n for n in self._candidates(its_id, name, index, place) if self._fits(n, its_id, name)), None)
        if number is None:
            number = len(self._calls)
            self._calls.append(_Call())
        return number

    def _take(self, call: _Call, part: dict[str, Any]) -> bool:
        """Add a part to its call. Returns whether a name that was said before was taken out."""
        its_id, name = part.get("id") or None, _name(part)
        again = name == call.name and not (its_id and its_id == call.id)
        call.id = its_id or call.id
        call.begun = call.begun or any(value not in (None, "") for value in _said(part, "arguments", "input"))
        call.arguments += (piece for piece in _said(part, "arguments") if isinstance(piece, str))
        if not name:
            return False
        call.name, call.chunk = name if name == call.name else call.name + name, self._chunk
        for owner in (part, part.get("function"), part.get("custom")) if again else ():
            if isinstance(owner, dict):
                owner.pop("name", None)
        return again

    def _candidates(self, its_id: object, name: str, index: int | None, place: int) -> Iterator[int]:
        """The calls that a part may go on, the likeliest one first."""
        at = None if index is None else self._at.get(index)
        if at is not None and its_id == self._calls[at].id:
            yield at
        if its_id and not (name and index is not None and at is None):
            yield from (n for n in reversed(range(len(self._calls))) if self._calls[n].id == its_id)
        if at is not None:
            yield at
        elif index is None and 0 <= place < len(self._calls):
            call = self._calls[place]
            if not (name and call.name and name != call.name) and not (its_id and call.id):
                yield place

    def _fits(self, number: int, its_id: object, name: str) -> bool:
        call = self._calls[number]
        if not name:
            return True
        if its_id and its_id == call.id:
            return name == call.name or not call.begun
        if call.chunk == self._chunk or (its_id and call.id):
            return False
        return not call.begun or (name == call.name and call.cut)


def _said(part: Mapping[str, Any], *fields: str) -> Iterator[Any]:
    """The values of these fields, in whatever form of a call."""
    for owner in (part, part.get("function"), part.get("custom")):
        if isinstance(owner, Mapping):
            yield from map(owner.get, fields)


def _name(part: Mapping[str, Any]) -> str:
    return next((name for name in _said(part, "name") if name and isinstance(name, str)), "")


def _says_nothing(part: Mapping[str, Any]) -> bool:
    """Whether a part does not say to which call it belongs."""
    return part.get("index") is None and not part.get("id") and not _name(part)
