"""Which engine serves a synchronous request.

With a session: by rendezvous hashing, so that a session stays where its prefix is cached, and moves only when its engine is
gone or has clearly more than its share (Mirrokni, Thorup, Zadimoghaddam: Consistent Hashing with Bounded Loads, 2016).
Without: the one with the fewest open requests of this gateway for its slots, among equals the one that waited longest.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping

from app import clock

BOUND = (
    1.25  # a session leaves an engine that has more than this many times its share, by slots, of the open requests …
)
AVOIDED_SECONDS = 1.0  # an engine that could not be reached is asked only after the others for so long
FEW = 8  # … unless these are so few that they cost less than a prompt computed anew


class Balance:
    """Counts this gateway's open requests by engine name."""

    def __init__(self) -> None:
        self.open: Counter[str] = Counter()
        self._avoided: dict[str, float] = {}  # until which second
        self._turns: dict[str, int] = {}
        self._turn = 0

    def order(self, slots: Mapping[str, int], session: str | None) -> list[str]:
        """The engines, by name and how many requests each runs at once, best first; last those that could not be reached."""
        now = clock.monotonic()
        found = self._by_load(slots) if session is None else self._by_session(slots, session)
        return sorted(found, key=lambda name: self._avoided.get(name, 0.0) > now)

    def avoid(self, name: str) -> None:
        """This engine could not be reached."""
        self._avoided[name] = clock.monotonic() + AVOIDED_SECONDS

    def _by_load(self, slots: Mapping[str, int]) -> list[str]:
        return sorted(slots, key=lambda name: (self.open[name] / slots[name], self._turns.get(name, 0)))

    def _by_session(self, slots: Mapping[str, int], session: str) -> list[str]:
        load = (1 + sum(self.open[name] for name in slots)) / max(1, sum(slots.values()))
        most = {name: max(FEW, math.ceil(BOUND * load * own)) for name, own in slots.items()}
        ranked = sorted(slots, key=lambda name: _weight(name, session), reverse=True)
        return sorted(ranked, key=lambda name: self.open[name] >= most[name])

    def enter(self, name: str) -> None:
        """A request goes to this engine."""
        self._turn += 1
        self._turns[name] = self._turn
        self.open[name] += 1

    def leave(self, name: str) -> None:
        """A request has left it."""
        self.open[name] -= 1
        if not self.open[name]:
            del self.open[name]


def _weight(name: str, session: str) -> bytes:
    return hashlib.blake2b(f"{name}\0{session}".encode(), digest_size=8).digest()
