"""How long a silence may last before it means something. Pure: moments are seconds of one monotonic clock.

`Patience` learns it from the silences that ended well. `Pulse` knows in which of them it was we who did not run: a process that
was stopped or starved must not take its own absence for the engine's.
"""

import collections
from collections.abc import Iterable
from typing import NamedTuple

MARGIN = 1.5  # as many times the longest silence that was followed by life
CEILING_SECONDS = 20.0
MEMORY_SECONDS = 600.0


class Stall(NamedTuple):
    """This process did not run for so many seconds, until then."""

    until: float
    seconds: float


def missed(stalls: Iterable[Stall], since: float) -> float:
    """Seconds since then in which this process did not run."""
    return sum(min(stall.seconds, stall.until - since) for stall in stalls if stall.until > since)


class SilenceLimit:
    """`limit` is never below `floor` nor above `ceiling`, unless the floor is."""

    def __init__(self, floor: float, ceiling: float = CEILING_SECONDS) -> None:
        self._floor = floor
        self._ceiling = max(floor, ceiling)
        self._longest, self._before, self._turned = 0.0, 0.0, 0.0

    def ended(self, seconds: float, now: float) -> None:
        """A silence of so many seconds was followed by life. It is remembered for ten minutes, twenty at most."""
        if now - self._turned > MEMORY_SECONDS:
            self._longest, self._before, self._turned = 0.0, self._longest, now
        self._longest = max(self._longest, seconds)

    def limit(self, plausible: float = 0.0) -> float:
        """Seconds of silence from which on something is wrong. `plausible`: what a silence may well last, by other knowledge."""
        longest = max(self._longest, self._before, plausible)
        return min(self._ceiling, max(self._floor, MARGIN * longest))


class Pulse:
    """Beats while this process runs. Beats further apart than `seconds` are a stall; what it lasted beyond counts as missed."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last: float | None = None
        self._stalls: collections.deque[Stall] = collections.deque(maxlen=64)

    def beat(self, now: float) -> None:
        """To be called several times in those seconds."""
        if self._last is not None and (seconds := now - self._last - self._seconds) > 0:
            self._stalls.append(Stall(now, seconds))
        self._last = now

    def stalls(self, now: float) -> tuple[Stall, ...]:
        """The latest ones, the present one included."""
        late = 0.0 if self._last is None else now - self._last - self._seconds
        return (*self._stalls, Stall(now, late)) if late > 0 else tuple(self._stalls)
