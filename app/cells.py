"""Cells: several PostgreSQL servers that are one installation. Today there is one, cell 0 (docs/decisions/0046). Pure.

An id names the cell of its row, so that a request can be sent to the right one without a look-up:

    requests, pipelines, conversations, files, uploads   UUIDs of version 8: the third group is `8` and the cell, three hex digits
    batch_id                                             bits 50 to 61, above the day and the number within it

An id of version 4 is of cell 0.
"""

from uuid import UUID, uuid4

HOME = 0
_GROUP_BIT = 64  # where the third group of a UUID begins
_DIGITS = 0xFFF


def new_id(cell: int = HOME) -> UUID:
    """A random id of this cell, 0 to 4095."""
    group = 0x8000 | cell & _DIGITS
    return UUID(int=uuid4().int & ~(0xFFFF << _GROUP_BIT) | group << _GROUP_BIT)
