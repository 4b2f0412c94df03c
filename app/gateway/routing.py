"""Chooses the engine for a synchronous request: `Balance.order` ranks the engines.

With a session: by rendezvous hashing, so that a session stays at the engine that caches its prefix. It moves only if that
engine is gone or overloaded (Mirrokni, Thorup, Zadimoghaddam: Consistent Hashing with Bounded Loads, 2016).
Without a session: the engine with the fewest open requests of this gateway per slot; among equals, the least recently used.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping

from app import clock

# A session leaves an engine that has more than BOUND times its share (by slots) of the open requests, and more than FEW.
BOUND = 1.25
FEW = 8  # waiting behind so few requests costs less than computing a prompt again elsewhere
AVOIDED_SECONDS = 1.0  # for this time an engine that could not be reached is ranked last


class Balance:
    """Ranks engines by this gateway's open requests, which it counts by engine name."""

    def __init__(self) -> None:
        self.open: Counter[str] = Counter()
        self._avoided: dict[str, float] = {}  # by engine: the monotonic second until which it is ranked last
        self._turns: dict[str, int] = {}
        self._turn = 0

    def order(self, slots: Mapping[str, int], session: str | None) -> list[str]:
        """Rank engines, best first. `slots`: by engine name, how many requests it runs at once. Unreachable ones come last."""
        now = clock.monotonic()
        found = self._by_load(slots) if session is None else self._by_session(slots, session)
        return sorted(found, key=lambda name: self._avoided.get(name, 0.0) > now)

    def avoid(self, name: str) -> None:
        """Record that an engine could not be reached."""
        self._avoided[name] = clock.monotonic() + AVOIDED_SECONDS

    def _by_load(self, slots: Mapping[str, int]) -> list[str]:
        return sorted(slots, key=lambda name: (self.open[name] / slots[name], self._turns.get(name, 0)))

    def _by_session(self, slots: Mapping[str, int], session: str) -> list[str]:
        load = (1 + sum(self.open[name] for name in slots)) / max(1, sum(slots.values()))
        most = {name: max(FEW, math.ceil(BOUND * load * own)) for name, own in slots.items()}
        ranked = sorted(slots, key=lambda name: _weight(name, session), reverse=True)
        return sorted(ranked, key=lambda name: self.open[name] >= most[name])

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


def _weight(name: str, session: str) -> bytes:
    return hashlib.blake2b(f"{name}\0{session}".encode(), digest_size=8).digest()
