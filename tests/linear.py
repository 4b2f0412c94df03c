"""Measures how the processor time of a parser grows with its input."""

import gc
import time
from collections.abc import Callable
from typing import Any

_ENOUGH_SECONDS = 0.004  # of processor time: the clock measures it well, and what is quadratic shows
_LONGEST = 1 << 22
_TRIES = 5

Run = Callable[[Any], object]
Make = Callable[[int], Any]


def growth(run: Run, make: Make) -> float:
    """By what factor `run(make(n))` takes longer when `n` doubles: about 2 if it is linear, 4 if it is quadratic.

    Of two doublings, each end measured as the best of five.
    """
    n = 64
    while seconds(run, make(n), 1) < _ENOUGH_SECONDS and n < _LONGEST:
        n *= 2
    return float((seconds(run, make(4 * n)) / seconds(run, make(n))) ** 0.5)


def seconds(run: Run, given: Any, tries: int = _TRIES) -> float:
    """The processor time of this thread that `run(given)` takes, the best of `tries`."""
    taken = []
    gc.disable()
    try:
        for _ in range(tries):
            before = time.thread_time()
            run(given)
            taken.append(time.thread_time() - before)
    finally:
        gc.enable()
    return max(min(taken), 1e-9)
