"""The state of the whole queue: an overview for people, and gauges for metrics. Both are cheap to read."""

from dataclasses import dataclass

from app.db.pool import Connection
from app.queue import overview_sql as queries


@dataclass(frozen=True, slots=True)
class Overview:
    """The queue at one moment. `oldest_waiting_seconds`: the time since the oldest batch with a ready chunk began its run; None:
    no chunk is ready. `workers`: GPU workers whose lease holds. `steward`: one leads. `notifier`, `maintenance`: one is
    connected.
    """

    open_batches: int
    items_waiting: int
    items_running: int
    oldest_waiting_seconds: float | None
    workers: int
    steward: bool
    notifier: bool
    maintenance: bool


async def overview(conn: Connection) -> Overview:
    """Read the overview."""
    row = await (await conn.execute(queries.OVERVIEW)).fetchone()
    assert row is not None
    return Overview(*row)


async def gauges(conn: Connection) -> list[tuple[str, str, float]]:
    """(name, table or model, value) of everything that an operator should watch. `app.api.metrics` describes each."""
    return [(name, of, float(value)) for name, of, value in await (await conn.execute(queries.GAUGES)).fetchall()]
