"""Medians with bootstrap intervals."""

import random
from collections.abc import Sequence
from statistics import median


def interval(values: Sequence[float], confidence: float = 0.95, draws: int = 5000) -> tuple[float, float, float]:
    """(median, low, high) by percentile bootstrap with a fixed seed."""
    rng = random.Random(7)
    medians = sorted(median(rng.choices(values, k=len(values))) for _ in range(draws))
    tail = (1 - confidence) / 2
    return median(values), medians[int(tail * draws)], medians[int((1 - tail) * draws) - 1]
