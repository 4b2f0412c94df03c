"""The steward's verbs: reap, promote, expire, sweep, settle, recompute, keep stock. One leader at a time runs them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from uuid import UUID

from psycopg import sql

from app.db.pool import Connection
from app.queue import maintenance_sql as queries
from app.queue import pace
from app.queue.lost_workers import Beat, Watch
from app.states import BatchState


@dataclass(frozen=True, slots=True)
class Settled:
    """A batch that has just become final, `seconds` after its submit or its last retry."""

    batch_id: int
    request_id: UUID
    tenant_id: int
    account_id: str
    model: str
    run: int
    state: BatchState
    total: int
    ok: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    traceparent: str | None
    kind: str
    seconds: float


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """An unfinished batch and how many of its items are counted as done."""

    batch_id: int
    run: int
    request_id: UUID
    model: str
    total: int
    ok: int
    failed: int
    kind: str

    @property
    def done(self) -> int:
        """Items with a result."""
        return self.ok + self.failed


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A batch of which something is in an engine. `late`: at the pool's pace it will not be done when it expires."""

    tenant_id: int
    account_id: str
    batch_id: int
    run: int
    request_id: UUID
    model: str
    traceparent: str | None
    total: int
    ok: int
    failed: int
    late: bool


async def under_way(conn: Connection, tenant_ids: list[int]) -> list[UnderWay]:
    """Those of the tenants' batches."""
    rows = await (await conn.execute(queries.UNDER_WAY, {"tenant_ids": tenant_ids})).fetchall()
    return [UnderWay(*row) for row in rows]


async def reap(conn: Connection, watch: Watch | None = None) -> tuple[int, int]:
    """Take the chunks of workers whose lease lapsed. Returns (workers, chunks).

    `watch` says which of the losses are charged to the chunks, and learns of them; without one those of single workers are.
    """
    rows = await (await conn.execute(queries.BEATS)).fetchall()
    now, server_start = rows[0][:2]
    workers = [Beat(*row[2:]) for row in rows if row[2] is not None]
    lapsed, charged = (watch or Watch(since=-inf)).judge(now, server_start, workers)
    row = await (await conn.execute(queries.REAP, {"lapsed": lapsed, "charged": charged})).fetchone()
    return (row[0], row[1]) if row else (0, 0)


async def look(conn: Connection, watch: Watch) -> None:
    """Tell the watch that the database answers, where a round that reaps takes longer."""
    row = await (await conn.execute(queries.LOOK)).fetchone()
    assert row is not None
    watch.look(*row)


async def promote(conn: Connection) -> int:
    """Make delayed chunks ready whose time has come. Returns how many."""
    row = await (await conn.execute(queries.PROMOTE)).fetchone()
    return row[0] if row else 0


async def expire(conn: Connection) -> int:
    """Begin to end the batches whose time is over. Returns how many."""
    return len(await (await conn.execute(queries.EXPIRE)).fetchall())


async def has_work(conn: Connection) -> bool:
    """Whether there is anything to sweep, fold or end."""
    row = await (await conn.execute(queries.HAS_WORK)).fetchone()
    return bool(row and row[0])


async def sweep(conn: Connection, batch_id: int | None = None) -> int:
    """Carry the state of paused, resumed, cancelled and expired batches (or of one) to their chunks. Returns how many moved."""
    moved = 0
    for query in queries.sweeps(one=batch_id is not None):
        row = await (await conn.execute(query, {"batch_id": batch_id})).fetchone()
        moved += row[0] if row else 0
    return moved


async def settle(conn: Connection, on_fold: Callable[[BatchProgress], None] = lambda progress: None) -> list[Settled]:
    """Fold the counts of finished chunks into their batches and make final what has come to its end.

    Call inside a transaction; write the events of the returned batches in the same one. `on_fold` hears of each batch that has
    moved, before that transaction has committed.
    """
    await conn.execute(queries.ONE_AT_A_TIME)
    folded = [BatchProgress(*row) for row in await (await conn.execute(queries.FOLD)).fetchall()]
    for progress in folded:
        on_fold(progress)
    return await finalise(conn, [progress.batch_id for progress in folded], ending=True)


async def running(conn: Connection) -> list[BatchProgress]:
    """The batches of which something is leased now."""
    return [BatchProgress(*row) for row in await (await conn.execute(queries.RUNNING)).fetchall()]


async def finalise(conn: Connection, batch_ids: list[int], *, ending: bool = False) -> list[Settled]:
    """Make final those of the batches that have come to their end, and with `ending` any that is winding up. As `settle`."""
    rows = await (await conn.execute(queries.FINALISE, {"ids": batch_ids, "all": ending})).fetchall()
    found = [Settled(*row) for row in rows]
    return [replace(batch, state=BatchState(batch.state)) for batch in found]


@dataclass(frozen=True, slots=True)
class Drift:
    """What was added to a tenant's caches in a pool to make them true again."""

    pool_id: int
    tenant_id: int
    ready: int
    inflight_tokens: int


async def recompute(conn: Connection) -> list[Drift]:
    """Compute the caches of the fair order anew from the chunks. Returns what was wrong. Call inside a transaction."""
    await conn.execute(queries.LOCK_CACHES)
    return [Drift(*row) for row in await (await conn.execute(queries.RECOMPUTE)).fetchall()]


async def gauges(conn: Connection) -> list[tuple[str, str, float]]:
    """(name, table or model, value) of what an operator should watch; `app.api.metrics` says what each means."""
    return [(name, of, float(value)) for name, of, value in await (await conn.execute(queries.GAUGES)).fetchall()]


async def note_pace(conn: Connection) -> None:
    """Write down how much each pool has served up to now, and what that says of its pace; estimates are made from it."""
    for pool_id, at, served in await (await conn.execute(queries.SERVED)).fetchall():
        asked = {"pool_id": pool_id, "limit": pace.NOTES}
        notes = await (await conn.execute(queries.NOTES, asked)).fetchall()
        found = pace.measure([*((second, tokens) for second, tokens in notes), (at, served)])
        said = {"pace": found and found.tokens_per_second, "spread": found and found.spread}
        await conn.execute(queries.NOTE_PACE, {"pool_id": pool_id, "at": at, "served": round(served), **said})
    await conn.execute(queries.FORGET_PACE)


async def create_partitions(conn: Connection, days_ahead: int) -> list[str]:
    """Make sure that payload and result partitions exist for today (UTC) and `days_ahead` days. Returns the new ones.

    Call inside a transaction. ATTACH locks the parent far less than CREATE … PARTITION OF would.
    """
    await conn.execute(queries.PARTITION_LOCK)
    existing = {row[0] for row in await (await conn.execute(queries.PARTITIONS)).fetchall()}
    days = await (await conn.execute(queries.DAYS, {"days": days_ahead})).fetchall()
    created = []
    for day, low, high in days:
        for parent in ("item_payload", "item_result"):
            name = f"{parent}_{day}"
            if name in existing:
                continue
            names = {"name": sql.Identifier(name), "parent": sql.Identifier(parent), "low": low, "high": high}
            await conn.execute(sql.SQL("create table {name} (like {parent} including all)").format(**names))
            await conn.execute(
                sql.SQL("alter table {parent} attach partition {name} for values from ({low}) to ({high})").format(
                    **names
                )
            )
            created.append(name)
    return created
