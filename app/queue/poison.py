"""What to do with a chunk that lost its engine or its worker time and again. Pure.

A chunk's `attempt` counts the deaths that it was in. One death says little about one item of many, so it is narrowed down:

    once          run it again, among others
    SUSPECT       one of its items may be what kills: every item gets a chunk of its own, to be run alone
    the limit     this item was alone in the engine at the last deaths: it is given up, with an error

So an item that kills costs at most `limit` deaths, and its neighbours are not charged with the last ones.
"""

from enum import Enum, auto

from app.queue.types import Lease

SUSPECT_ATTEMPTS = 2


class Verdict(Enum):
    """`ALONE`: nothing else of ours may be in the engine meanwhile."""

    RUN = auto()
    ALONE = auto()
    SPLIT = auto()
    BURY = auto()


def verdict(lease: Lease, unfinished: int, limit: int) -> Verdict:
    """What becomes of a leased chunk with so many items without a result. `limit` is beyond SUSPECT_ATTEMPTS."""
    if lease.attempt < SUSPECT_ATTEMPTS or unfinished == 0:
        return Verdict.RUN
    if unfinished > 1:
        return Verdict.SPLIT
    return Verdict.ALONE if lease.attempt < limit else Verdict.BURY


def epitaph(lease: Lease) -> str:
    """The error of an item that is given up."""
    return f"the engine or its worker died {lease.attempt} times while this item was running; it was given up"
