"""How fast a pool is, and how far that can be trusted. Pure.

The steward notes every few seconds how many tokens a pool has served, while there is work and an engine to do it. What lies
between two notes in a row is an interval; a longer pause between them is idleness, or an engine that was away, and says nothing.

    pace     tokens per second, the mean of the intervals, each worth half of one that is `HALF_LIFE` busy seconds younger
    spread   each stretch of `STRETCH` busy seconds is compared with what the pace before it foretold; by how much four of five
             of the latest were missed at most
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

NOTE_SECONDS = 2.5  # between two notes
PAUSE_SECONDS = 3 * NOTE_SECONDS
NOTES = 240  # that are looked at, ten minutes
HALF_LIFE = 60.0
STRETCH = 20.0
LATEST = 10  # stretches, by which the spread is told
FEWEST = 3  # stretches, without which it is not
USUAL = 0.8  # of the stretches are missed by no more than the spread

Note = tuple[float, float]  # the second, and the tokens that had been served by then
Interval = tuple[float, float]  # its seconds and its tokens


@dataclass(frozen=True, slots=True)
class Pace:
    """`spread`: a share of the pace; None: too little was measured."""

    tokens_per_second: float
    spread: float | None


def measure(notes: Sequence[Note]) -> Pace | None:
    """The pace by notes in the order of their times. None: there is no interval yet."""
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
    """Stretches are counted back from now, so that the newest is whole."""
    misses: list[float] = []
    end = len(intervals)
    while len(misses) < LATEST:
        begin = end
        length = 0.0
        while begin and length < STRETCH:
            begin -= 1
            length += intervals[begin][0]
        if not begin:
            break
        foretold, served = _mean(intervals[:begin]) * length, sum(tokens for _, tokens in intervals[begin:end])
        misses.append(abs(served - foretold) / max(foretold, 1e-9))
        end = begin
    if len(misses) < FEWEST:
        return None
    return sorted(misses)[min(len(misses) - 1, int(USUAL * len(misses)))]
