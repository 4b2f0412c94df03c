"""Sweeps over chunks: delayed chunks become ready, and chunks follow the state of their batch. Verbs of the steward.

A caller's verb (`batch_state`) sweeps the chunks of its batch at once. The steward's sweeps repeat that for all batches.
"""

from app.db import day_tables
from app.db.pool import Connection
from app.queue import chunk_sweeps_sql as queries
from app.queue import ready_counts


async def promote(conn: Connection) -> int:
    """Make delayed chunks ready when their delay is over. Returns how many."""
    row = await (await conn.execute(queries.PROMOTE)).fetchone()
    return row[0] if row else 0


async def sweep(conn: Connection) -> int:
    """Apply the state of paused, resumed, cancelled and expired batches to their chunks. Returns how many moved."""
    moved = 0
    for query in queries.sweeps(one=False):
        row = await (await conn.execute(query)).fetchone()
        moved += row[0] if row else 0
    return moved


async def sweep_batch(conn: Connection, batch_id: int) -> int:
    """The same for one batch. Call inside a transaction."""
    moved = 0
    for query, sign in zip(queries.sweeps(one=True), (-1, 1, -1), strict=True):
        rows = await conn.execute(day_tables.on_day(query, batch_id), {"batch_id": batch_id})
        for pool_id, tenant_id, ready, chunks, *first in await rows.fetchall():
            became_ready = tuple(first) if ready and sign > 0 else None
            ready_counts.of(conn).add(pool_id, tenant_id, sign * ready, became_ready)
            moved += chunks
    return moved
