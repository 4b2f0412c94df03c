"""Decides what to do with a chunk that lost its engine or its worker. Pure.

The death of an engine is charged to exactly the items that were in it (`deaths`). Each returns in its own chunk and runs alone,
on an engine without waiting synchronous requests. A harmless item gets its answer. An item whose engine dies again is given up,
so that it costs DEADLY restarts.

The loss of a worker (`attempt`) does not show what was in its engine, so it is charged to the whole chunk:

    once               the chunk runs again, among others
    SUSPECT_ATTEMPTS   one of its items may be the cause: every item gets its own chunk and runs alone
    the limit          the item was alone when the last workers were lost: it is given up
"""

from enum import Enum, auto

from app.queue.types import Lease

SUSPECT_ATTEMPTS = 2
DEADLY = 2
SUSPECTED = f"(deaths > 0 or attempt >= {SUSPECT_ATTEMPTS})"  # a condition on a chunk, as in `verdict`


class ChunkVerdict(Enum):
    """How a chunk continues. `ALONE`: no other batch request may be in the engine meanwhile."""

    RUN = auto()
    ALONE = auto()
    SPLIT = auto()
    GIVE_UP = auto()


def verdict(lease: Lease, unfinished: int, limit: int) -> ChunkVerdict:
    """The verdict on a leased chunk with so many `unfinished` items. `limit`: attempts, more than SUSPECT_ATTEMPTS."""
    suspected = lease.deaths > 0 or lease.attempt >= SUSPECT_ATTEMPTS
    if not suspected or unfinished == 0:
        return ChunkVerdict.RUN
    if unfinished > 1:
        return ChunkVerdict.SPLIT
    return ChunkVerdict.GIVE_UP if lease.deaths >= DEADLY or lease.attempt >= limit else ChunkVerdict.ALONE


def give_up_message(lease: Lease) -> str:
    """The error message of an item that is given up."""
    who, times = ("engine", lease.deaths) if lease.deaths >= DEADLY else ("worker", lease.attempt)
    return f"the {who} died {times} times while this item was running; it was given up"
