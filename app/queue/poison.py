"""What to do with a chunk that lost its engine or its worker. Pure.

An engine's death charges exactly the items that were in it (`deaths`): each comes back in a chunk of its own and runs alone,
on a calm engine. Innocent ones get their answer; the one that kills again is given up. So a killer costs DEADLY restarts.

A worker's loss (`attempt`) tells nothing of what was in the engine, and charges the whole chunk:

    once          run it again, among others
    SUSPECT       one of its items may be what kills: every item gets a chunk of its own, to be run alone
    the limit     this item was alone when the last workers were lost: it is given up
"""

from enum import Enum, auto

from app.queue.types import Lease

SUSPECT_ATTEMPTS = 2
DEADLY = 2


class ChunkVerdict(Enum):
    """`ALONE`: nothing else of ours may be in the engine meanwhile."""

    RUN = auto()
    ALONE = auto()
    SPLIT = auto()
    BURY = auto()


def verdict(lease: Lease, unfinished: int, limit: int) -> ChunkVerdict:
    """What becomes of a leased chunk with so many items without a result. `limit` is beyond SUSPECT_ATTEMPTS."""
    suspected = lease.deaths > 0 or lease.attempt >= SUSPECT_ATTEMPTS
    if not suspected or unfinished == 0:
        return ChunkVerdict.RUN
    if unfinished > 1:
        return ChunkVerdict.SPLIT
    return ChunkVerdict.BURY if lease.deaths >= DEADLY or lease.attempt >= limit else ChunkVerdict.ALONE


def epitaph(lease: Lease) -> str:
    """The error of an item that is given up."""
    who, times = ("engine", lease.deaths) if lease.deaths >= DEADLY else ("worker", lease.attempt)
    return f"the {who} died {times} times while this item was running; it was given up"
