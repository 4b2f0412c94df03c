"""Measures how the processor time of a parser grows with its input."""

import gc
import time
from collections.abc import Callable
from typing import Any

_ENOUGH_SECONDS = 0.001  # of processor time: the clock measures it well, and what is quadratic shows
_LONGEST = 1 << 20
_LEAST_TRIES = 3
_MOST_TRIES = 40
LINEAR = 3.0  # whatever grows by less when its input doubles

Run = Callable[[Any], object]
Make = Callable[[int], Any]


def growth(run: Run, make: Make) -> float:
    """By what factor `run(make(n))` takes longer when `n` doubles: about 2 if it is linear, 4 if it is quadratic.

    Of two doublings. Both ends are measured in turn until what is quadratic would show, because a busy machine makes any
    measurement longer but none shorter.
    """
    n = 64
    while seconds(run, make(n)) < _ENOUGH_SECONDS and n < _LONGEST:
        n *= 2
    if n >= _LONGEST:
        return 1.0  # what is quadratic would take hours for so long an input
    given, four_times = make(n), make(4 * n)
    short, long = [seconds(run, given)], [seconds(run, four_times)]
    while len(long) < _LEAST_TRIES or (_factor(short, long) > LINEAR and len(long) < _MOST_TRIES):
        short.append(seconds(run, given))
        long.append(seconds(run, four_times))
    return _factor(short, long)


def _factor(short: list[float], long: list[float]) -> float:
    return float((min(long) / min(short)) ** 0.5)


def seconds(run: Run, given: Any) -> float:
    """The processor time of this thread that `run(given)` takes."""
    gc.disable()
    try:
        before = time.thread_time()
        run(given)
        return max(time.thread_time() - before, 1e-9)
    finally:
        gc.enable()
