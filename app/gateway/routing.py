"""Chooses the engine for a synchronous request: `Balance.choose`. Pure.

With a session: the next engine on a ring of hashes, so that a session stays at the engine that caches its prefix. It moves only
if that engine is gone or overloaded (Mirrokni, Thorup, Zadimoghaddam: Consistent Hashing with Bounded Loads, 2016).
Without a session: the engine with the fewest open requests of this gateway per slot; among equals, the least recently used.
"""

import hashlib
import math
from bisect import bisect
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from itertools import islice

from app import clock

# A session leaves an engine that has more than BOUND times its share (by slots) of the open requests, and more than FEW.
BOUND = 1.25
FEW = 8  # waiting behind so few requests costs less than computing a prompt again elsewhere
AVOIDED_SECONDS = 1.0  # for this time an engine that could not be reached is ranked last
PREFERRED = 64  # engines that a session looks at
POINTS = 32  # of an engine on the ring; the more, the more evenly sessions are spread


class Fleet:
    """The engines that a request may go to. `slots`: by engine, how many requests it runs at once.

    `before`: the last fleet, whose ring is used again if it had the same engines.
    """

    def __init__(self, slots: Mapping[str, int], before: "Fleet | None" = None) -> None:
        self.slots = slots
        self.all_slots = max(1, sum(slots.values()))
        self._places: list[int]
        self._names: list[str]
        if before is not None and before.slots.keys() == slots.keys():
            self._places, self._names = before._places, before._names
        else:
            points = sorted((place, name) for name in slots for place in _points(name))
            self._places, self._names = [place for place, _ in points], [name for _, name in points]

    def walk(self, session: str) -> Iterator[str]:
        """All engines in the order in which a session prefers them."""
        start, seen = bisect(self._places, _hash(session)), set[str]()
        for index in range(start - len(self._names), start):
            if (name := self._names[index]) not in seen:
                seen.add(name)
                yield name


class Balance:
    """Ranks engines by this gateway's open requests, which it counts by engine name."""

    def __init__(self) -> None:
        self.open: Counter[str] = Counter()
        self._avoided: dict[str, float] = {}  # by engine: the monotonic second until which it is ranked last
        self._turns: dict[str, int] = {}
        self._turn = 0

    def choose(self, fleet: Fleet, session: str | None, tried: Collection[str] = ()) -> str | None:
        """The best engine that has room and was not tried; None: there is none. Unreachable and overloaded ones come last."""
        chosen = self._by_session(fleet, session, tried) if session is not None else None
        if chosen is not None:
            return chosen
        free = (name for name in fleet.slots if self._has_room(fleet, name) and name not in tried)
        return min(free, key=lambda name: self._burden(fleet, name), default=None)

    def _by_session(self, fleet: Fleet, session: str, tried: Collection[str]) -> str | None:
        """None: none of the engines that the session prefers has room. Then they are all alike to it."""
        best: tuple[tuple[bool, bool], str] | None = None
        load = (1 + sum(count for name, count in self.open.items() if name in fleet.slots)) / fleet.all_slots
        for name in islice(fleet.walk(session), PREFERRED):
            if name in tried or not self._has_room(fleet, name):
                continue
            most = max(FEW, math.ceil(BOUND * load * fleet.slots[name]))
            rank = self._is_avoided(name), self.open[name] >= most
            if not any(rank):
                return name
            if best is None or rank < best[0]:
                best = rank, name
        return best and best[1]

    def avoid(self, name: str) -> None:
        """Record that an engine could not be reached."""
        self._avoided[name] = clock.monotonic() + AVOIDED_SECONDS

    def _is_avoided(self, name: str) -> bool:
        return name in self._avoided and self._avoided[name] > clock.monotonic()

    def _has_room(self, fleet: Fleet, name: str) -> bool:
        return self.open[name] < fleet.slots[name]

    def _burden(self, fleet: Fleet, name: str) -> tuple[bool, float, int]:
        return self._is_avoided(name), self.open[name] / fleet.slots[name], self._turns.get(name, 0)

    def enter(self, name: str) -> None:
        """Count a request that is sent to an engine."""
        self._turn += 1
        self._turns[name] = self._turn
        self.open[name] += 1

    def leave(self, name: str) -> None:
        """Count the end of a request at an engine."""
        self.open[name] -= 1
        if not self.open[name]:
            del self.open[name]


@lru_cache(maxsize=16_384)
def _points(name: str) -> tuple[int, ...]:
    return tuple(_hash(f"{name}\0{number}") for number in range(POINTS))


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
