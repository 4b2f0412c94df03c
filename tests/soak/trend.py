"""How fast a series grows, with an interval. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

HOUR = 3600.0
BLOCKS = 20  # neighbouring readings depend on each other, so the line goes through the means of so many blocks
# 97.5 % quantiles of Student's t, by degrees of freedom.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262),
    *(2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101),
)
Point = tuple[float, float]  # seconds, value


@dataclass(frozen=True, slots=True)
class Trend:
    """The mean, and the growth in percent of it an hour with its 95 % interval."""

    mean: float
    growth: float
    low: float
    high: float

    def grows(self, percent: float, floor: float = 0.0) -> bool:
        """Whether it surely grows faster than this, and by more than `floor`, in the unit of the series, an hour."""
        return self.low > percent and self.low / 100 * self.mean > floor


def trend(points: Sequence[Point]) -> Trend:
    """The line of least squares through the means of blocks of equal size. Raises ValueError for fewer than three points."""
    if len(points) < 3:
        raise ValueError("a trend needs at least three readings")
    blocks = _blocks(points)
    times, values = [at for at, _ in blocks], [value for _, value in blocks]
    middle, mean = fmean(times), fmean(values)
    spread = sum((at - middle) ** 2 for at in times)
    slope = sum((at - middle) * (value - mean) for at, value in blocks) / spread
    errors = [value - mean - slope * (at - middle) for at, value in blocks]
    freedom = len(blocks) - 2
    margin = _T[freedom - 1] * (sum(error**2 for error in errors) / freedom / spread) ** 0.5
    scale = 100 * HOUR / mean if mean else 0.0
    return Trend(mean, slope * scale, (slope - margin) * scale, (slope + margin) * scale)


def _blocks(points: Sequence[Point]) -> list[Point]:
    count = min(BLOCKS, len(points))
    cuts = [round(n * len(points) / count) for n in range(count + 1)]
    parts = [points[first:last] for first, last in pairwise(cuts)]
    return [(fmean(at for at, _ in part), fmean(value for _, value in part)) for part in parts]
