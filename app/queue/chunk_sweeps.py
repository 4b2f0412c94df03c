"""Sweeps over chunks: delayed chunks become ready, and chunks follow the state of their batch. Verbs of the steward.

A caller's verb (`batch_state`) sweeps the chunks of its batch at once. The steward's sweeps repeat that for all batches.
"""

from app.db import day_tables
from app.db.pool import Connection
from app.queue import chunk_sweeps_sql as queries


async def promote(conn: Connection) -> int:
    """Make delayed chunks ready when their delay is over. Returns how many."""
    row = await (await conn.execute(queries.PROMOTE)).fetchone()
    return row[0] if row else 0


async def sweep(conn: Connection, batch_id: int | None = None) -> int:
    """Apply the state of paused, resumed, cancelled and expired batches, or of one, to their chunks. Returns how many moved."""
    moved = 0
    for query in queries.sweeps(one=batch_id is not None):
        statement = query if batch_id is None else day_tables.on_day(query, batch_id)
        row = await (await conn.execute(statement, {"batch_id": batch_id})).fetchone()
        moved += row[0] if row else 0
    return moved
