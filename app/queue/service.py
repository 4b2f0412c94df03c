"""The verbs of a GPU worker: register, claim, load, flush, finish, retire. Its heartbeat is in `app.queue.heartbeat`.

`register_worker`, `heartbeat` and `flush` must use a durable connection; the others may use a relaxed one (see `app.db.pool`).
If a server crash loses one of their commits, the fence rejects the worker, the work is redone, or the next heartbeat's answer
shows it.
A verb whose fence does not match returns None or False: the lease is lost, which is an ordinary outcome.
"""

from collections.abc import Collection, Sequence
from typing import Any

from psycopg import errors
from psycopg.types.json import Jsonb

from app.db import day_tables
from app.db.pool import Connection
from app.errors import NotFound
from app.queue import fair_order_sql, worker_sql
from app.queue.types import NO_TIMES, ChunkTimes, Fence, Finished, Item, Lease, Result

URGENT_SECONDS = 900.0  # a deadline nearer than this may use the urgent lane
URGENT_LEAD_TOKENS = 100_000  # at weight 1, how far the lane may bring an account ahead of its share
MOST_MS = 2**31 - 1


async def register_worker(conn: Connection, *, pool_id: int, host: str, pid: int, lease_seconds: float) -> int:
    """Insert a worker with a new lease. Returns its id, which is part of the fence and never reused."""
    parameters = {"pool_id": pool_id, "host": host, "pid": pid, "lease_seconds": lease_seconds}
    row = await (await conn.execute(worker_sql.REGISTER_WORKER, parameters)).fetchone()
    assert row is not None
    return int(row[0])


async def retire_worker(conn: Connection, worker_id: int) -> None:
    """Delete a worker that stops. If it still holds chunks its row stays, and the steward reaps it later."""
    await conn.execute(worker_sql.RETIRE_WORKER, {"worker_id": worker_id})


async def claim(
    conn: Connection, pool_id: int, worker_id: int, *, chunks: int = 1, urgent: bool = False
) -> list[Lease]:
    """Lease the next chunks in the fair order: up to `chunks` (1, 2 or 4) of one account. Empty: there are none, or the worker's
    lease has lapsed.

    `urgent`: lease the one chunk with the earliest deadline, if that is near. Workers use it for a bounded share of their claims.
    """
    parameters: dict[str, object] = {"pool_id": pool_id, "worker_id": worker_id}
    if urgent:
        parameters |= {"urgent_seconds": URGENT_SECONDS, "lead_tokens": URGENT_LEAD_TOKENS}
    query = fair_order_sql.CLAIM_URGENT if urgent else fair_order_sql.CLAIM[chunks]
    try:
        rows = await conn.execute(query, parameters)
    except errors.LockNotAvailable:
        rows = await conn.execute(fair_order_sql.CLAIM_FREE, {"pool_id": pool_id, "worker_id": worker_id})
    return [Lease(*row) for row in await rows.fetchall()]


async def load(conn: Connection, lease: Lease) -> list[Item]:
    """The items of the chunk without a durable result in this run, in leased order."""
    parameters = {"batch_id": lease.batch_id, "run": lease.run, "lo": lease.lo, "hi": lease.hi, "seqs": lease.seqs}
    cursor = await day_tables.execute(conn, worker_sql.LOAD, lease.batch_id, parameters, binary=True)
    return [Item(*row) for row in await cursor.fetchall()]


async def flush(
    conn: Connection, lease: Lease, results: Sequence[Result], *, engine_id: int | None = None, feeds: bool = False
) -> bool:
    """Store results durably, as of this engine. False: the lease is lost, and nothing was stored; stop working on this chunk.

    `feeds`: of the batch, so that its results are handed on.
    """
    if not results:
        return True
    parameters = {"run": lease.run, "engine_id": engine_id, **_columns(results)}
    if feeds:
        parameters["bytes"] = sum(len(result.body) for result in results)
    row = await _fenced(conn, worker_sql.FLUSH_FEEDING if feeds else worker_sql.FLUSH, lease, parameters)
    return row is not None and row[0] == 1


async def _fenced(conn: Connection, statement: str, lease: Lease | Fence, parameters: dict[str, Any]) -> Any:
    """The row of a statement with the lease's fence; None: the lease is lost."""
    fence = {
        "chunk_id": lease.chunk_id,
        "token": lease.token,
        "worker_id": lease.worker_id,
        "batch_id": lease.batch_id,
    }
    try:
        cursor = await day_tables.execute(conn, statement, lease.batch_id, fence | parameters)
    except NotFound:  # a day is dropped only once none of its batches is open
        return None
    return await cursor.fetchone()


def _columns(results: Sequence[Result]) -> dict[str, list[Any]]:
    """The columns of `worker_sql.RESULT_COLUMNS`."""
    columns = {name: list(column) for name, column in zip(Result._fields, zip(*results, strict=True), strict=True)}
    columns["ok"] = list(map(int, columns["ok"]))
    columns["ran_ms"] = columns.pop("duration_ms")
    columns["details"] = [Jsonb(dict(details)) if details else None for details in columns["details"]]
    for name in ("queued_ms", "first_token_ms", "ran_ms"):
        columns[name] = [None if ms is None else _whole_ms(ms) for ms in columns[name]]
    return columns


def _whole_ms(ms: float) -> int:
    """At most the largest number that the column takes: 24 days."""
    return max(0, min(MOST_MS, round(ms)))


async def finish(
    conn: Connection,
    lease: Lease | Fence,
    *,
    backoff_seconds: float = 0.0,
    suspects: Collection[int] = (),
    retried: Collection[int] = (),
    retry_seconds: float = 0.0,
    split: bool = False,
    times: ChunkTimes = NO_TIMES,
) -> Finished | None:
    """End the lease. Items with a result are counted; all others go back to the queue after `backoff_seconds`.

    `suspects`: seqs that were in an engine when it died; each is charged with the death and gets its own chunk. `retried`: seqs
    that met a transient error; they wait for `retry_seconds` in one chunk. `split`: every item gets its own chunk.
    `times`: what the worker measured during the lease. None: the lease was lost before.
    """
    parameters = {
        "run": lease.run,
        "backoff_seconds": backoff_seconds,
        "suspects": list(suspects),
        "retried": list(retried),
        "retry_seconds": retry_seconds,
        "split": split,
        "engine_ms": times.engine_ms,
        "first_tokens": times.first_tokens,
        "durations": times.durations,
        "unrun": times.unrun,
    }
    row = await _fenced(conn, worker_sql.FINISH, lease, parameters)
    return None if row is None else Finished(done=row[0], returned=lease.n - row[0])
