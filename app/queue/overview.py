"""The whole queue and those who work on it, in a few numbers that cost little to ask for."""

from dataclasses import dataclass

from app.db.pool import Connection
from app.queue import overview_sql as queries


@dataclass(frozen=True, slots=True)
class Overview:
    """`oldest_waiting_seconds`: since the run of the oldest batch began that has a chunk waiting for a worker; None: no one
    waits. `workers`: GPU workers whose lease holds. `steward`: one leads. `notifier`: one is connected.
    """

    open_batches: int
    items_waiting: int
    items_running: int
    oldest_waiting_seconds: float | None
    workers: int
    steward: bool
    notifier: bool


async def overview(conn: Connection) -> Overview:
    """One look."""
    row = await (await conn.execute(queries.LOOK)).fetchone()
    assert row is not None
    return Overview(*row)
