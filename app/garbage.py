"""Python's garbage collector in a server: it looks for cycles seldom, and not among what was there at the start."""

import gc

# What is made for a request, or for a step of the hand-off, leaves no reference cycles. Python's default, 700 objects, spends a
# tenth of the processor time on looking for them.
_COLLECT_AFTER = (20_000, 20, 20)


def collect_seldom() -> None:
    """Call when a server has loaded what it needs: looking through that again would hold up everything for some 100 ms."""
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
