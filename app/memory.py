"""The memory of a server: when Python looks for garbage, and when the C library gives back what is free."""

import ctypes
import gc
from collections.abc import Callable
from functools import cache
from threading import Thread
from time import sleep

# What is made for a request, or for a step of the hand-off, leaves no reference cycles. Python's default, 700 objects, spends a
# tenth of the processor time on looking for them.
_COLLECT_AFTER = (5_000, 20, 20)
TRIM_SECONDS = 60.0


def collect_seldom() -> None:
    """Call when a server has loaded what it needs: looking through that again would hold up everything for some 100 ms."""
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


@cache
def trim_often(every_seconds: float = TRIM_SECONDS) -> None:
    """Give free memory back to the system every so often, from a thread of its own. Does nothing without glibc.

    By itself glibc gives back only what lies above all that is in use, so a server of steady work grows by some percent an hour.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        Thread(target=_keep_trimming, args=(trim, every_seconds), name="trim", daemon=True).start()


def _keep_trimming(trim: Callable[[int], int], every_seconds: float) -> None:
    while True:
        sleep(every_seconds)
        trim(0)
