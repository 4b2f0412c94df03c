"""What workers and autoscalers need to know of each pool. A verb of the steward: one look instead of one by each worker.

A worker gets its pool's row with its heartbeat (`app.queue.heartbeat`); `GET /scale/{model}` reads the demand.
"""

from app.db.pool import Connection
from app.queue import pool_status_sql as queries


async def write(conn: Connection) -> None:
    """Write the status of every pool. It reads every open chunk, so its duration grows with the backlog."""
    await conn.execute(queries.WRITE)
