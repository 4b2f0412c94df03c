"""The pace of a pool, and how reliable it is. Pure.

Every few seconds the steward notes how many tokens a pool has served, while it has work and a ready engine (`pace_log`). The time
between two consecutive notes is an interval. A longer pause between two notes means that the pool was idle or had no engine; it
is ignored.

    pace     tokens per second: the weighted mean of the intervals. A weight halves every `HALF_LIFE` busy seconds of age.
    spread   each stretch of `STRETCH` busy seconds is compared with the forecast by the pace before it. The spread is the
             relative error that four of five of the latest forecasts stayed within.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

NOTE_SECONDS = 2.5  # between two notes
PAUSE_SECONDS = 3 * NOTE_SECONDS
NOTES = 240  # that are used, ten minutes
HALF_LIFE = 60.0
STRETCH = 20.0
MAX_STRETCHES = 10  # the latest ones, from which the spread is computed
MIN_STRETCHES = 3  # with fewer there is no spread
QUANTILE = 0.8  # this share of the forecasts has an error within the spread

Note = tuple[float, float]  # the time in seconds, and the tokens served until then
Interval = tuple[float, float]  # its seconds and its tokens


@dataclass(frozen=True, slots=True)
class Pace:
    """`spread`: a share of the pace. None: too few measurements."""

    tokens_per_second: float
    spread: float | None


def measure(notes: Sequence[Note]) -> Pace | None:
    """The pace from notes in the order of their times. None: there is no interval yet."""
    intervals = [
        (after[0] - before[0], after[1] - before[1])
        for before, after in pairwise(notes)
        if 0 < after[0] - before[0] <= PAUSE_SECONDS and after[1] >= before[1]
    ]
    if not intervals:
        return None
    return Pace(_mean(intervals), _spread(intervals))


def _mean(intervals: Sequence[Interval]) -> float:
    age = seconds = tokens = 0.0
    for length, served in reversed(intervals):
        weight = 0.5 ** (age / HALF_LIFE)
        seconds, tokens, age = seconds + weight * length, tokens + weight * served, age + length
    return tokens / seconds


def _spread(intervals: Sequence[Interval]) -> float | None:
    """Stretches are built backwards from now, so that the newest one is complete."""
    errors: list[float] = []
    end = len(intervals)
    while len(errors) < MAX_STRETCHES:
        begin = end
        length = 0.0
        while begin and length < STRETCH:
            begin -= 1
            length += intervals[begin][0]
        if not begin:
            break
        forecast, served = _mean(intervals[:begin]) * length, sum(tokens for _, tokens in intervals[begin:end])
        errors.append(abs(served - forecast) / max(forecast, 1e-9))
        end = begin
    if len(errors) < MIN_STRETCHES:
        return None
    return sorted(errors)[min(len(errors) - 1, int(QUANTILE * len(errors)))]
