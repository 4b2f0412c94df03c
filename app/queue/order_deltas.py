"""Adds what ended leases have used to the fair order. A verb of the steward.

A finish writes a row of `sched_delta` and leaves `sched` to the claims, which would otherwise wait for it.
"""

from app.db.pool import Connection
from app.queue import fair_order_sql


async def fold(conn: Connection) -> int:
    """Add waiting deltas to the fair order, 5,000 at most. Returns how many. Use a relaxed connection in autocommit mode: claims
    wait for the rows of `sched` until it is committed.
    """
    row = await (await conn.execute(fair_order_sql.FOLD_DELTAS)).fetchone()
    return row[0] if row else 0
