"""How much longer an idle step may take because callers stay away. Pure; two numbers and no list of arrivals.

`usual` is the silence that 199 of 200 callers did not exceed: a caller who comes after a longer one multiplies it by `RAISE`,
and any other caller by `LOWER`. When callers have been away for longer, an idle step may take a tenth of the time beyond
`usual`. So a caller seldom meets such a step, waits at most a tenth of the silence before, and ends it by arriving.
"""

from dataclasses import dataclass
from typing import Self

SHARE = 0.1  # of the silence beyond the usual one
RAISE, LOWER = 2.7, 0.995  # they balance when one caller in two hundred comes after a longer silence
FIRST, LEAST, MOST = 2.0, 0.5, 120.0  # seconds of `usual`: at the start, and its bounds


@dataclass(frozen=True, slots=True)
class Quiet:
    """`since`: the last moment with a synchronous request, or the start. `usual`: a silence that is not remarkable. Seconds."""

    since: float
    usual: float = FIRST

    def arrived(self, now: float) -> Self:
        """A caller has come."""
        factor = RAISE if now - self.since > self.usual else LOWER
        return type(self)(max(self.since, now), min(MOST, max(LEAST, self.usual * factor)))

    def present(self, now: float) -> Self:
        """Synchronous requests are there."""
        return type(self)(max(self.since, now), self.usual)

    def step(self, now: float) -> float:
        """Seconds that an idle step may take; 0 while the silence is not longer than usual."""
        return max(0.0, SHARE * (now - self.since - self.usual))
