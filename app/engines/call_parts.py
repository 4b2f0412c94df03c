"""Which tool call of a streamed choice a part belongs to. Pure.

A part belongs to the call that its index names, or else its id. Not every server sends an index, or another one for each call, or
an id. So a part with a name also begins a call if nothing says to which it belongs, or if its id is a new one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


class CallNumbers:
    """The numbers of the calls of one choice, from 0 in the order in which they begin."""

    def __init__(self) -> None:
        self._ids: list[object] = []
        self._at: dict[object, int] = {}  # the newest call of each index

    def of(self, parts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """The parts of one chunk, each with the number of its call."""
        for place, part in enumerate(parts):
            number = self._of(part, place if len(parts) > 1 else len(self._ids) - 1)
            self._ids[number] = part.get("id") or self._ids[number]
            yield number, part

    def _of(self, part: Mapping[str, Any], place: int) -> int:
        index, its_id, named = part.get("index"), part.get("id"), _is_named(part)
        known = None
        if isinstance(index, int):
            known = self._at.get(index)
            if known is not None and its_id and named and self._ids[known] not in (None, its_id):
                known = None
        elif its_id and its_id in self._ids:
            known = self._ids.index(its_id)
        elif not its_id and not named and 0 <= place < len(self._ids):
            known = place
        if known is None:
            known = len(self._ids)
            self._ids.append(None)
        self._at[index if isinstance(index, int) else known] = known
        return known


def _is_named(part: Mapping[str, Any]) -> bool:
    owners = (part.get("function"), part.get("custom"))
    return any(isinstance(owner, Mapping) and owner.get("name") for owner in owners)
