"""Measures how the processor time of a parser grows with its input."""

import gc
import time
from collections.abc import Callable
from typing import Any

_ENOUGH_SECONDS = 0.001  # of processor time: the clock measures it well, and what is quadratic shows
_LONGEST = 1 << 16  # longer inputs measure how fast the machine gives memory
_LEAST_TRIES = 3
_MOST_TRIES = 12
LINEAR = 3.0  # whatever grows by less when its input doubles

Run = Callable[[Any], object]
Make = Callable[[int], Any]


def growth(run: Run, make: Make) -> float:
    """By what factor `run(make(n))` takes longer when `n` doubles: about 2 if it is linear, 4 if it is quadratic.

    Of two doublings; of four, where memory that is suddenly needed makes the larger input look worse than it is.
    """
    n = 64
    while seconds(run, make(n)) < _ENOUGH_SECONDS and n < _LONGEST:
        n *= 2
    if n >= _LONGEST:
        return 1.0  # 4 billion steps take more than that millisecond, whatever a step is
    found = _growth(run, make(n), make(4 * n), 2)
    return found if found <= LINEAR else _growth(run, make(n), make(16 * n), 4)


def _growth(run: Run, given: Any, longer: Any, doublings: int) -> float:
    """Both are measured in turn until what is quadratic would show: a busy machine makes measurements longer, none shorter."""
    short, long = [seconds(run, given)], [seconds(run, longer)]

    def factor() -> float:
        return float((min(long) / min(short)) ** (1 / doublings))

    while len(long) < _LEAST_TRIES or (factor() > LINEAR and len(long) < _MOST_TRIES):
        short.append(seconds(run, given))
        long.append(seconds(run, longer))
    return factor()


def seconds(run: Run, given: Any) -> float:
    """The processor time of this thread that `run(given)` takes."""
    gc.disable()
    try:
        before = time.thread_time()
        run(given)
        return max(time.thread_time() - before, 1e-9)
    finally:
        gc.enable()
