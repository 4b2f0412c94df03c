"""The verbs of engines: find a model's pool, take and release an engine, report on it, list them."""

from dataclasses import dataclass
from datetime import datetime

from app.db.pool import Connection
from app.engines import queries


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine as its worker last reported it. `controlled`: a live worker holds its controller lease.

    `arrival_url`: where that worker hears of synchronous requests; None if nowhere. `slots`: requests it runs at once.
    """

    engine_id: int
    name: str
    model: str
    url: str
    arrival_url: str | None
    mode: str
    slots: int
    state: str
    reason: str | None
    allowance: int
    heartbeat_at: datetime
    controlled: bool


async def ensure_pool(conn: Connection, model: str) -> int:
    """The pool of the engines that serve this model, made on first use."""
    while True:
        row = await (await conn.execute(queries.FIND_POOL, {"model": model})).fetchone()
        if row is not None:
            return int(row[0])
        await conn.execute(queries.ADD_POOL, {"model": model})


async def take_engine(
    conn: Connection,
    *,
    name: str,
    pool_id: int,
    url: str,
    mode: str,
    worker_id: int,
    slots: int = 256,
    arrival_url: str | None = None,
) -> int | None:
    """Take the controller lease of the engine `name`, entering the engine if it is new. Returns its id.

    None: another worker controls it, by this name or another one for the same URL, and that worker's lease has not lapsed;
    stand by and ask again.
    """
    parameters = {
        "name": name,
        "pool_id": pool_id,
        "url": url,
        "arrival_url": arrival_url,
        "mode": mode,
        "slots": slots,
        "worker_id": worker_id,
    }
    async with conn.transaction():
        await conn.execute(queries.ONE_URL, {"url": url})
        row = await (await conn.execute(queries.TAKE, parameters)).fetchone()
    return None if row is None else int(row[0])


async def report_engine(
    conn: Connection,
    engine_id: int,
    worker_id: int,
    *,
    ready: bool,
    reason: str | None,
    allowance: int,
    signal: str | None = None,
    value: float | None = None,
    threshold: float | None = None,
) -> bool:
    """Say how the engine is, and why: `signal` was `value` against `threshold`. False: another worker has taken it over."""
    parameters = {
        "engine_id": engine_id,
        "worker_id": worker_id,
        "reason": reason,
        "allowance": allowance,
        "signal": signal,
        "value": value,
        "threshold": threshold,
    }
    statement = queries.report("report_ready" if ready else "report_down")
    return await (await conn.execute(statement, parameters)).fetchone() is not None


async def release_engine(conn: Connection, engine_id: int, worker_id: int) -> None:
    """Give up the controller lease, so that a standby worker need not wait for it to lapse."""
    await conn.execute(queries.RELEASE, {"engine_id": engine_id, "worker_id": worker_id})


async def list_engines(conn: Connection) -> list[Engine]:
    """Every engine that was ever taken, by name."""
    return [Engine(*row) for row in await (await conn.execute(queries.LIST)).fetchall()]
