"""Cells: several PostgreSQL servers that are one installation. Today there is one, cell 0 (docs/decisions/0046).

An id names the cell of its row, so that a request can be sent to the right one without a look-up:

    requests, pipelines, conversations, files, uploads   UUIDs of version 8: the third group is `8` and the cell, three hex digits
    uploaded files, webhooks                             UUIDs of version 7: the third group is `7` and the cell
    batch_id                                             bits 50 to 61, above the day and the number within it

An id of version 4 is of cell 0. Version 7 is for what its owner may delete while paging through a list of it: the id begins with
the time at which it was made, which is the `created_at` of its row, so it is a place in the list without that row, too.
"""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from app import clock

HOME = 0
_EPOCH, _MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
_TIME_BIT = 80  # where the milliseconds begin
_GROUP_BIT = 64  # where the third group of a UUID begins
_DIGITS = 0xFFF


def new_id(cell: int = HOME) -> UUID:
    """A random id of this cell, 0 to 4095."""
    return _id(uuid4().int, 8, cell)


def new_timed_id(cell: int = HOME) -> UUID:
    """An id of this cell that begins with its time."""
    milliseconds = (clock.now() - _EPOCH) // _MILLISECOND
    return _id(uuid4().int & (1 << _TIME_BIT) - 1 | milliseconds << _TIME_BIT, 7, cell)


def made_at(timed_id: UUID) -> datetime | None:
    """When an id with a time was made. None: it has none."""
    if timed_id.version != 7:
        return None
    try:
        return _EPOCH + (timed_id.int >> _TIME_BIT) * _MILLISECOND
    except OverflowError:  # after the year 9999
        return None


def _id(bits: int, version: int, cell: int) -> UUID:
    group = version << 12 | cell & _DIGITS
    return UUID(int=bits & ~(0xFFFF << _GROUP_BIT) | group << _GROUP_BIT)
