"""Two variants side by side, each number with the interval in which it lies with 95 % confidence. Pure.

Shares of requests, and ranks of latencies, have Wilson's interval. Cost and cached share are sums of hours of very different
size, and a session's growth is one number, so their intervals come from the bootstrap: the hours, or the sessions, are drawn
again with replacement. It draws the same numbers in each call.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import sqrt
from typing import NamedTuple, TypeVar

from app.metering import sketch
from app.metering.slope import slope
from app.usage_counts import UsageCounts

T = TypeVar("T")

_Z = 1.959964  # of 95 %
_DRAWS = 400
_MIN_DRAWN = 5  # hours or sessions: fewer say nothing about how much they vary
_MIN_TIMES = 20  # answers whose latency is known


class Interval(NamedTuple):
    """A number and its bounds. `low` and `high` None: too little was seen for bounds."""

    value: float
    low: float | None = None
    high: float | None = None

    def differs(self, other: "Interval") -> bool:
        """Whether the two intervals have nothing in common."""
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return False
        return self.high < other.low or other.high < self.low


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen of one variant: usage and cost of each hour, sketches, and the last prompts of its sessions.

    `currency` None: there is no price, or prices are in several currencies, which cannot be added.
    """

    hours: Sequence[tuple[UsageCounts, Decimal | None]]
    first_token: Sequence[int]
    duration: Sequence[int]
    sessions: Sequence[Sequence[int]]
    currency: str | None = None

    def total(self, name: str) -> int:
        """The sum of one of the counts."""
        return sum(getattr(counts, name) for counts, _ in self.hours)


class Measure(NamedTuple):
    """One number of the comparison: `of` gives None where nothing was seen. `unit`: ms, share, cost, tokens."""

    name: str
    unit: str
    of: Callable[[Observed], Interval | None]


def wilson(found: float, among: float) -> Interval | None:
    """A share, with Wilson's interval. None: of nothing."""
    if not among:
        return None
    share, square = found / among, _Z * _Z
    middle = (share + square / (2 * among)) / (1 + square / among)
    half = _Z / (1 + square / among) * sqrt(share * (1 - share) / among + square / (4 * among * among))
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half))


def latency(counts: Sequence[int], q: float) -> Interval | None:
    """A quantile of a sketch, in ms. Its bounds are those of its rank."""
    times, value = sum(counts), sketch.quantile(counts, q)
    ranks = wilson(q * times, times)
    if value is None or ranks is None:
        return None
    if times < _MIN_TIMES or ranks.low is None or ranks.high is None:
        return Interval(value)
    return Interval(value, sketch.quantile(counts, ranks.low), sketch.quantile(counts, ranks.high))


def ratio(pairs: Sequence[tuple[float, float]]) -> Interval | None:
    """The sum of the first numbers over that of the second ones, with the interval of the bootstrap over the pairs."""
    return _bootstrapped(pairs, lambda drawn: _share(sum(a for a, _ in drawn), sum(b for _, b in drawn)))


def growth(sessions: Sequence[Sequence[int]]) -> Interval | None:
    """The mean of the sessions' slopes: tokens that a prompt is longer than the one before it."""
    slopes = [found for prompts in sessions if (found := slope(prompts)) is not None]
    return _bootstrapped(slopes, lambda drawn: _share(sum(drawn), len(drawn)))


def _bootstrapped(items: Sequence[T], of: Callable[[Sequence[T]], float | None]) -> Interval | None:
    value = of(items)
    if value is None:
        return None
    if len(items) < _MIN_DRAWN:
        return Interval(value)
    draw = random.Random(0)  # noqa: S311
    drawn = (of(draw.choices(items, k=len(items))) for _ in range(_DRAWS))
    found = sorted(each for each in drawn if each is not None)
    edge = len(found) // 40  # 2.5 %
    return Interval(value, found[edge], found[-1 - edge])


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _cost(seen: Observed) -> Interval | None:
    if seen.currency is None:
        return None
    return ratio([(float(cost), counts.ok) for counts, cost in seen.hours if cost is not None])


MEASURES = (
    Measure("ttft_p50", "ms", lambda seen: latency(seen.first_token, 0.5)),
    Measure("ttft_p95", "ms", lambda seen: latency(seen.first_token, 0.95)),
    Measure("duration_p50", "ms", lambda seen: latency(seen.duration, 0.5)),
    Measure(
        "failures", "share", lambda seen: wilson(seen.total("requests") - seen.total("ok"), seen.total("requests"))
    ),
    Measure("cost_per_answer", "cost", _cost),
    Measure("cached_share", "share", lambda seen: ratio([(counts.cached, counts.prompt) for counts, _ in seen.hours])),
    Measure("retried", "share", lambda seen: wilson(seen.total("retried"), seen.total("requests"))),
    Measure("retries_answered", "share", lambda seen: wilson(seen.total("retried_ok"), seen.total("retried"))),
    Measure("tokens_per_turn", "tokens", lambda seen: growth(seen.sessions)),
)
