"""The state of the whole queue: an overview for people, and gauges for metrics. Both are cheap to read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from app.db.pool import Connection
from app.engines import overview as engine_overview
from app.queue import item_counts_sql
from app.queue import overview_sql as queries
from app.queue.item_counts import PLACES, ItemCounts


@dataclass(frozen=True, slots=True)
class Overview:
    """The queue at one moment. `items`: of the open batches. `oldest_waiting_seconds`: the time since the oldest batch with
    items that wait, whatever for, began its run; None: no item waits. `workers`: GPU workers whose heartbeats come.
    `steward`: one leads. `notifier`, `maintenance`: one is connected. `waiting`: the models with chunks that wait for a
    worker, each with the kinds of their batches if it has no engine. `inside`: batch and synchronous requests in each
    engine with a worker, by its name. `database_seconds`: how long the database has run; None: not known.
    `moneyless`: batches that wait only for money of a budget, as the steward noted it.
    """

    items: ItemCounts
    open_batches: int
    oldest_waiting_seconds: float | None
    workers: int
    steward: bool
    notifier: bool
    maintenance: bool
    waiting: Mapping[str, Sequence[str]] = field(default_factory=dict)
    inside: Mapping[str, Sequence[int]] = field(default_factory=dict)
    database_seconds: float | None = field(default=None, compare=False)
    moneyless: int = 0


async def overview(conn: Connection) -> Overview:
    """Read the overview."""
    row = await (await conn.execute(queries.OVERVIEW)).fetchone()
    assert row is not None
    *counts, waiting, inside, seconds, moneyless = row
    found = Overview(await _items(conn), *counts)
    return replace(found, waiting=waiting, inside=inside, database_seconds=seconds, moneyless=moneyless)


async def gauges(conn: Connection) -> list[tuple[str, str, float]]:
    """(name, table or model, value) of everything that an operator should watch. `app.api.metrics` describes each."""
    rows = await (await conn.execute(queries.GAUGES)).fetchall()
    items = await _items(conn)
    places = [("items", place, float(getattr(items, place))) for place in PLACES]
    engines = await engine_overview.gauges(conn)
    return [*((name, of, float(value)) for name, of, value in rows), *places, *engines]


async def _items(conn: Connection) -> ItemCounts:
    """The items of all batches that are not final, without the lines of pipelines' inputs, which never run."""
    row = await (await conn.execute(item_counts_sql.OPEN)).fetchone()
    assert row is not None
    return ItemCounts(*row)
