"""Reaps workers whose lease has lapsed: their chunks go back to the queue. A verb of the steward.

`app.worker_lease` has the rule of a lapsed lease. `lost_workers` decides whose loss is charged to the chunks.
"""

from math import inf

from app.db.pool import Connection
from app.queue import reaping_sql as queries
from app.queue.lost_workers import Heartbeat, WorkerWatch


async def reap(conn: Connection, watch: WorkerWatch | None = None) -> tuple[int, int]:
    """Take back the chunks of workers whose lease has lapsed. Returns the numbers of (workers, chunks).

    `watch` decides which losses are charged to the chunks, and remembers them. Without it, every loss of a single worker is.
    """
    rows = await (await conn.execute(queries.HEARTBEATS)).fetchall()
    now, server_start, orphans = rows[0][:3]
    workers = [Heartbeat(*row[3:]) for row in rows if row[3] is not None]
    watch = watch or WorkerWatch(since=-inf)
    lapsed, charged = watch.judge(now, server_start, workers)
    if watch.put_back:
        await conn.execute(queries.BEGIN_AGAIN)
        watch.put_back = False
    if not (lapsed or orphans):
        return 0, 0
    row = await (await conn.execute(queries.REAP, {"lapsed": lapsed, "charged": charged})).fetchone()
    return (row[0], row[1]) if row else (0, 0)


async def look(conn: Connection, watch: WorkerWatch) -> None:
    """Tell `watch` that the database answers, also while a round takes long."""
    row = await (await conn.execute(queries.LOOK)).fetchone()
    assert row is not None
    watch.look(*row)


async def reap_all(conn: Connection) -> tuple[int, int]:
    """Take back the chunks of all workers, and charge none. Returns the numbers of (workers, chunks). Call in a transaction."""
    lapsed = [worker_id for (worker_id,) in await (await conn.execute(queries.END_LEASES)).fetchall()]
    row = await (await conn.execute(queries.REAP, {"lapsed": lapsed, "charged": []})).fetchone()
    assert row is not None
    return row[0], row[1]
