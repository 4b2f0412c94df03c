"""Sequences after the database was restored to an earlier moment.

From then on it would give ids again that it had given in the part of its history that is lost. They are in the hands of others:
in keys of objects, in the fences of workers that nobody has stopped, and in the positions up to which callers have read events.
"""

from datetime import datetime

from app.db import sequences_sql as queries
from app.db.pool import Connection

STEP = 1 << 20  # more ids than a lost part of the history can have given
_STEPS = (1 << 16) - 1  # so that an id of a batch, whose sequence has 36 bits, does not come round to where it was


def jump(at: datetime) -> int:
    """By how much ids of 64 bits jump in a restore at this time: for 45 days, another multiple of STEP in each minute.

    Somebody who restores once more, to about the same moment, thus does not get the ids of the first try again.
    """
    return STEP * (1 + int(at.timestamp()) // 60 % _STEPS)


async def advance(conn: Connection, at: datetime) -> int:
    """Let every sequence go on far beyond the ids that it may have given. Returns how many sequences there are. A
    rollback does not undo it.
    """
    [(count,)] = await (await conn.execute(queries.ADVANCE, {"wide": jump(at), "narrow": STEP})).fetchall()
    return int(count)
