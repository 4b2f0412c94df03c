"""The steward's verbs: reap, promote, expire, sweep, settle, recompute. One leading steward at a time runs them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from uuid import UUID

from app.db.pool import Connection
from app.queue import fair_order_sql, lifecycle_sql
from app.queue import maintenance_sql as queries
from app.queue.lost_workers import Heartbeat, WorkerWatch
from app.queue.progress import BatchProgress
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


async def reap(conn: Connection, watch: WorkerWatch | None = None) -> tuple[int, int]:
    """Take back the chunks of workers whose lease has lapsed. Returns the numbers of (workers, chunks).

    `watch` decides which losses are charged to the chunks, and remembers them. Without it, every loss of a single worker is.
    """
    rows = await (await conn.execute(queries.HEARTBEATS)).fetchall()
    now, server_start = rows[0][:2]
    workers = [Heartbeat(*row[2:]) for row in rows if row[2] is not None]
    lapsed, charged = (watch or WorkerWatch(since=-inf)).judge(now, server_start, workers)
    row = await (await conn.execute(queries.REAP, {"lapsed": lapsed, "charged": charged})).fetchone()
    return (row[0], row[1]) if row else (0, 0)


async def look(conn: Connection, watch: WorkerWatch) -> None:
    """Tell `watch` that the database answers, also while a round takes long."""
    row = await (await conn.execute(queries.LOOK)).fetchone()
    assert row is not None
    watch.look(*row)


async def promote(conn: Connection) -> int:
    """Make delayed chunks ready when their delay is over. Returns how many."""
    row = await (await conn.execute(queries.PROMOTE)).fetchone()
    return row[0] if row else 0


async def expire(conn: Connection) -> int:
    """Set batches whose `expires_at` has passed to `expiring`. Returns how many. `sweep` and `settle` end them."""
    return len(await (await conn.execute(lifecycle_sql.EXPIRE)).fetchall())


async def has_work(conn: Connection) -> bool:
    """Whether there is anything to sweep, fold or end."""
    row = await (await conn.execute(queries.HAS_WORK)).fetchone()
    return bool(row and row[0])


async def sweep(conn: Connection, batch_id: int | None = None) -> int:
    """Apply the state of paused, resumed, cancelled and expired batches, or of one, to their chunks. Returns how many moved."""
    moved = 0
    for query in queries.sweeps(one=batch_id is not None):
        row = await (await conn.execute(query, {"batch_id": batch_id})).fetchone()
        moved += row[0] if row else 0
    return moved


async def settle(conn: Connection, on_fold: Callable[[BatchProgress], None] = lambda progress: None) -> list[Settled]:
    """Add the counts of finished chunks to their batches, and end the batches that are done.

    Call inside a transaction, and write the events of the returned batches in the same one. `on_fold` is called with each batch
    whose counts changed, before that transaction commits.
    """
    await conn.execute(queries.ONE_AT_A_TIME)
    folded = [BatchProgress(*row) for row in await (await conn.execute(queries.FOLD)).fetchall()]
    for progress in folded:
        on_fold(progress)
    return await finalise(conn, [progress.batch_id for progress in folded], ending=True)


async def finalise(conn: Connection, batch_ids: list[int], *, ending: bool = False) -> list[Settled]:
    """End those of the batches that are done, and with `ending` also any that is cancelling or expiring. See `settle`."""
    rows = await (await conn.execute(lifecycle_sql.FINALISE, {"ids": batch_ids, "all": ending})).fetchall()
    batches = [Settled(*row) for row in rows]
    return [replace(batch, state=BatchState(batch.state)) for batch in batches]


@dataclass(frozen=True, slots=True)
class Drift:
    """The correction of a tenant's cached counts in a pool: what was added to each."""

    pool_id: int
    tenant_id: int
    ready: int
    inflight_tokens: int


async def recompute(conn: Connection) -> list[Drift]:
    """Recompute the cached counts of the fair order from the chunks. Returns the corrections. Call inside a transaction."""
    await conn.execute(fair_order_sql.LOCK_CACHES)
    return [Drift(*row) for row in await (await conn.execute(fair_order_sql.RECOMPUTE)).fetchall()]
