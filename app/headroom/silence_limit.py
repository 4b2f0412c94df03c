"""How long an engine may be silent before it counts as failed. Pure: times are seconds of one monotonic clock.

`SilenceLimit` learns the limit from silences that ended well. `Pulse` records when this process did not run, because a process
that was stopped or starved must not take its own pause for a silence of the engine.
"""

import collections
from collections.abc import Iterable
from typing import NamedTuple

MARGIN = 1.5  # times the longest silence that ended well
CEILING_SECONDS = 20.0
MEMORY_SECONDS = 600.0


class Stall(NamedTuple):
    """This process did not run for `seconds`, which ended at `until`."""

    until: float
    seconds: float


def missed(stalls: Iterable[Stall], since: float) -> float:
    """Seconds since then in which this process did not run."""
    return sum(min(stall.seconds, stall.until - since) for stall in stalls if stall.until > since)


class SilenceLimit:
    """Learns a limit of at least `floor` and at most `ceiling`; a larger floor wins."""

    def __init__(self, floor: float, ceiling: float = CEILING_SECONDS) -> None:
        self._floor = floor
        self._ceiling = max(floor, ceiling)
        self._longest, self._before, self._turned = 0.0, 0.0, 0.0

    def ended(self, seconds: float, now: float) -> None:
        """Note a silence that ended well. It is remembered for ten to twenty minutes."""
        if now - self._turned > MEMORY_SECONDS:
            self._longest, self._before, self._turned = 0.0, self._longest, now
        self._longest = max(self._longest, seconds)

    def limit(self, plausible: float = 0.0) -> float:
        """Seconds of silence beyond which the engine counts as failed. `plausible`: how long a silence may last by prediction."""
        longest = max(self._longest, self._before, plausible)
        return min(self._ceiling, max(self._floor, MARGIN * longest))


class Pulse:
    """Beats while this process runs. If two beats are more than `seconds` apart, the rest of the time is a stall."""

    def __init__(self, seconds: float) -> None:
        self._usual = self._seconds = seconds
        self._last: float | None = None
        self._stalls: collections.deque[Stall] = collections.deque(maxlen=64)

    def beat(self, now: float, pause: float = 0.0) -> None:
        """Call it several times per `seconds`. `pause`: the next beat may come so much later."""
        if self._last is not None and (seconds := now - self._last - self._seconds) > 0:
            self._stalls.append(Stall(now, seconds))
        self._last, self._seconds = now, self._usual + pause

    def stalls(self, now: float) -> tuple[Stall, ...]:
        """The last stalls, the present one included."""
        late = 0.0 if self._last is None else now - self._last - self._seconds
        return (*self._stalls, Stall(now, late)) if late > 0 else tuple(self._stalls)
