"""Shapley values of `FACTORS` factors in integers, and their rounding. Pure.

A subset of the factors is a number: bit i is set for factor i. The value of factor i is the mean, over all `ORDERS` orders, of
what changes when i comes to the factors before it:

    Σ over S without i of |S|! · (FACTORS - 1 - |S|)! / FACTORS! · (C(S and i) - C(S))

Each subset's C has therefore one weight in the values of the factors in it, and one in those of the others.
"""

from collections.abc import Sequence
from math import factorial
from operator import itemgetter

FACTORS = 7
ORDERS = factorial(FACTORS)

_SUBSETS = range(2**FACTORS)
_SIZES = [subset.bit_count() for subset in _SUBSETS]
_IN = [factorial(size - 1) * factorial(FACTORS - size) if size else 0 for size in _SIZES]
_OUT = [factorial(size) * factorial(FACTORS - 1 - size) if size < FACTORS else 0 for size in _SIZES]
_IN_AND_OUT = [inside + outside for inside, outside in zip(_IN, _OUT, strict=True)]
_WITH = [itemgetter(*(subset for subset in _SUBSETS if subset >> factor & 1)) for factor in range(FACTORS)]


def values(costs: Sequence[int]) -> list[int]:
    """The value of each factor times `ORDERS`, from C of each subset. They add up to `ORDERS` times C(all) - C(none)."""
    weighted = [cost * weight for cost, weight in zip(costs, _IN_AND_OUT, strict=True)]
    outside = sum(cost * weight for cost, weight in zip(costs, _OUT, strict=True))
    return [sum(members(weighted)) - outside for members in _WITH]


def rounded(numerators: Sequence[int], denominator: int) -> list[int]:
    """The fractions as integers that add up to their sum, rounded half up. The largest remainders are rounded up."""
    total = (2 * sum(numerators) + denominator) // (2 * denominator)
    found = [numerator // denominator for numerator in numerators]
    by_remainder = sorted(range(len(found)), key=lambda i: numerators[i] % denominator, reverse=True)
    for i in by_remainder[: total - sum(found)]:
        found[i] += 1
    return found
