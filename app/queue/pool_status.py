"""What workers and autoscalers need to know of each pool. A verb of the steward: one look instead of one by each worker.

A worker gets its pool's row with its heartbeat (`app.queue.heartbeat`); `GET /scale/{model}` reads the demand.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from app.db.pool import Connection
from app.queue import pool_status_sql as queries


class Asking(NamedTuple):
    """The first chunk of a pool without an engine that its budgets can pay: deadline and estimated tokens."""

    pool_id: int
    deadline: datetime
    tokens: int


async def write(conn: Connection, asking: Sequence[Asking] = ()) -> None:
    """Write the status of every pool. It reads every open chunk, so its duration grows with the backlog. `asking`: at most one
    for each pool.
    """
    pool_ids, deadlines, tokens = ([each[place] for each in asking] for place in range(3))
    await conn.execute(queries.WRITE, {"pool_ids": pool_ids, "deadlines": deadlines, "tokens": tokens})
