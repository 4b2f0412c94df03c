"""Percentiles, and medians with bootstrap intervals."""

import random
from collections.abc import Sequence
from statistics import median, quantiles


def interval(values: Sequence[float], confidence: float = 0.95, draws: int = 5000) -> tuple[float, float, float]:
    """(median, low, high) by percentile bootstrap with a fixed seed."""
    rng = random.Random(7)
    medians = sorted(median(rng.choices(values, k=len(values))) for _ in range(draws))
    tail = (1 - confidence) / 2
    return median(values), medians[int(tail * draws)], medians[int((1 - tail) * draws) - 1]


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """(median, 99th percentile)."""
    cuts = quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]
