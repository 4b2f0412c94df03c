"""Latencies as counts: a quantile of many hours is that of one sketch, made by adding theirs. Pure.

A sketch is a plain list of `BUCKETS` counts. Bucket i counts the times from g^i to g^(i+1) ms, with g = 1.05 / 0.95. All of
them are at most 5 % from 1.05 · g^i, which a quantile returns. Times below 1 ms count as 1 ms, those above 366 s as 366 s.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

BUCKETS = 128
ERROR = 0.05  # the largest relative error of a quantile
_GROWTH = math.log((1 + ERROR) / (1 - ERROR))
_SLACK = 1e-9  # 0.07 * 100 is a little more than 7


def empty() -> list[int]:
    """A sketch without a time."""
    return [0] * BUCKETS


def bucket(ms: float) -> int:
    """The index of the bucket that counts this time."""
    return int(min(math.log(ms) / _GROWTH, BUCKETS - 1)) if ms > 1 else 0


def counted(buckets: bytes) -> list[int]:
    """The sketch of times whose buckets are these bytes."""
    counts = empty()
    for index, times in Counter(buckets).items():
        counts[index] += times
    return counts


def merge(sketches: Iterable[Sequence[int]]) -> list[int]:
    """The sketch of everything that these counted. Raises ValueError for one that has not `BUCKETS` counts."""
    merged = empty()
    for counts in sketches:
        merged = [mine + theirs for mine, theirs in zip(merged, counts, strict=True)]
    return merged


def quantile(counts: Sequence[int], q: float) -> float | None:
    """The time in ms that the share `q` of all times does not exceed. None: nothing is counted.

    Raises ValueError if `q` is not from 0 to 1.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"quantile {q}: must be from 0 to 1")
    left = max(1, math.ceil(q * sum(counts) - _SLACK))
    for index, count in enumerate(counts):
        left -= count
        if left <= 0:
            return (1 + ERROR) * math.exp(index * _GROWTH)
    return None
