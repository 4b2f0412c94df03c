"""Helpers that submit batches and run them, for tests."""

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

from app.db.pool import Connection, Database
from app.engines import service as engines
from app.engines.engine_report import EngineReport
from app.queue import copy_format, heartbeat, ingest, service, settling, settling_sql
from app.queue.chunking import cut
from app.queue.heartbeat import Heartbeat
from app.queue.types import HeldLease, Item, Lease, Result
from app.states import EngineIntake
from testing.waiting import eventually

CACHES = """
select s.ready, (s.inflight_tokens - coalesce(sum(d.est_tokens), 0))::int8
from sched s left join sched_delta d using (pool_id, tenant_id) group by s.pool_id, s.tenant_id"""


async def make_tenant(conn: Connection, account: str = "acme", weight: float = 1.0) -> int:
    """Create a tenant. Returns its id."""
    sql = "insert into tenant (account_id, name, weight) values (%s, %s, %s) returning tenant_id"
    row = await (await conn.execute(sql, (account, account, weight))).fetchone()
    assert row
    return int(row[0])


async def make_pool(conn: Connection, model: str = "toy") -> int:
    """Create a pool. Returns its id."""
    row = await (await conn.execute("insert into pool (model) values (%s) returning pool_id", (model,))).fetchone()
    assert row
    return int(row[0])


async def submit(
    database: Database, tenant: int, pool: int, items: int, *, tokens: int = 100, max_items: int = 16
) -> ingest.NewBatch:
    """Submit a batch of `items` small items."""
    async with database.transaction() as conn:
        batch = await new_batch(conn, tenant, pool, items)
        await put(conn, batch, [tokens] * items, max_items=max_items)
    return batch


async def new_batch(
    conn: Connection,
    tenant: int,
    pool: int,
    items: int,
    *,
    deadline_seconds: float = 86_400,
    expires: bool = False,
    key: str | None = None,
) -> ingest.NewBatch:
    """A batch with a new id, not yet in the queue."""
    batch_id = await ingest.next_batch_id(conn)
    return ingest.NewBatch(
        batch_id,
        uuid.uuid4(),
        tenant,
        pool,
        "toy",
        "/v1/chat/completions",
        items,
        deadline_seconds,
        expires=expires,
        idempotency_key=key,
        request_hash=b"hash" if key else None,
    )


async def put(
    conn: Connection,
    batch: ingest.NewBatch,
    tokens: Sequence[int],
    *,
    max_items: int = 16,
    keys: Sequence[int] | None = None,
    padding: bytes = b"",
) -> int | None:
    """Insert a batch with one item for each of `tokens`. Returns as `ingest.enqueue`."""
    payload = [copy_format.HEADER]
    payload += [
        copy_format.payload_row(
            batch.batch_id, seq, f"ref-{seq}", None, estimate, b'{"prompt": "%d%s"}' % (seq, padding)
        )
        for seq, estimate in enumerate(tokens)
    ]
    payload.append(copy_format.TRAILER)
    return await ingest.enqueue(conn, batch, payload, cut(tokens, max_tokens=16_000, max_items=max_items, keys=keys))


async def make_worker(database: Database, pool: int, lease_seconds: float = 30) -> int:
    """Register a worker. Returns its id."""
    async with database.durable() as conn:
        return await service.register_worker(conn, pool_id=pool, host="test", pid=1, lease_seconds=lease_seconds)


async def serve_all(database: Database) -> None:
    """Give each pool that has none a worker with a ready engine."""
    async with database.durable() as conn:
        pools = await (await conn.execute("select pool_id from pool except select pool_id from engine")).fetchall()
    for (pool,) in pools:
        await serve(database, pool)


async def serve(database: Database, pool: int) -> int:
    """A worker with the ready engine of this pool. Returns the worker's id."""
    worker = await make_worker(database, pool)
    async with database.durable() as conn:
        await conn.execute(_ENGINE, (f"e{pool}", pool, worker))
    return worker


_ENGINE = """
insert into engine (name, pool_id, url, mode, worker_id, state, intake)
values (%s, %s, 'http://e', 'attached', %s, 'ready', 'open')
on conflict (name) do update set worker_id = excluded.worker_id"""


async def make_engine(conn: Connection, database: Database, pool: int) -> int:
    """Register a worker with a ready engine. Returns the worker's id."""
    worker = await make_worker(database, pool)
    engine = await engines.take_engine(conn, pool_id=pool, worker_id=worker, name="e", url="http://e", mode="attached")
    assert engine is not None
    assert await report_engine(conn, engine, worker, ready=True, reason="open", allowance=8)
    return worker


async def report_engine(
    conn: Connection, engine: int, worker: int, *, lease_seconds: float = 30, **values: Any
) -> EngineIntake | None:
    """Report an engine with a heartbeat of its worker. None: the worker does not control it."""
    answer = (await heartbeat.send(conn, [Heartbeat(worker, engine, EngineReport(**values))], lease_seconds)).get(
        worker
    )
    return answer.intake if answer else None


async def beat(conn: Connection, worker: int, lease_seconds: float = 30) -> list[HeldLease] | None:
    """The leases that a heartbeat lists. None: the worker's own lease has lapsed."""
    answer = (await heartbeat.send(conn, [Heartbeat(worker)], lease_seconds)).get(worker)
    return answer.held if answer else None


def answers(items: Sequence[Item], ok: bool = True) -> list[Result]:
    """A result for each item: 3 prompt tokens, 1 cached, 5 completion."""
    return [Result(item.seq, ok, 1, 3, 1, 5, b'{"n": %d}' % item.seq) for item in items]


async def claim(conn: Connection, pool: int, worker: int, *, urgent: bool = False) -> Lease | None:
    """Claim one chunk. None: there is none."""
    leases = await service.claim(conn, pool, worker, urgent=urgent)
    return leases[0] if leases else None


async def run_chunk(database: Database, lease: Lease) -> None:
    """Load, flush and finish a leased chunk."""
    async with database.durable() as conn:
        items = await service.load(conn, lease)
        assert await service.flush(conn, lease, answers(items))
        assert await service.finish(conn, lease) is not None


async def drain(database: Database, pool: int, worker: int) -> list[Lease]:
    """Run chunks until there are none. Returns the leases in the order of their claims."""
    leases = []
    while True:
        async with database.relaxed() as conn:
            lease = await claim(conn, pool, worker)
        if lease is None:
            return leases
        leases.append(lease)
        await run_chunk(database, lease)


async def settle(database: Database) -> list[settling.Settled]:
    """Run one round of fold and finalise."""
    async with database.transaction() as conn:
        settled, *_ = await settling.settle(conn)
        return settled


async def fold(conn: Connection) -> list[int]:
    """Add the counts of finished chunks to their batches, and end none. Returns the batches."""
    taken = {"ids": [row[0] for row in await (await conn.execute(settling_sql.TAKE)).fetchall()]}
    return [row[0] for row in await (await conn.execute(settling_sql.FOLD, taken)).fetchall()]


async def caches(conn: Connection) -> list[tuple[int, int]]:
    """(ready, in-flight tokens) of every account in the fair order, once folded. All are zero when nothing is open."""
    return [tuple(row) for row in await (await conn.execute(CACHES)).fetchall()]


async def until_waiting(database: Database, waiters: int = 1) -> None:
    """Wait until so many statements of this database wait for a lock."""
    sql = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    async with database.relaxed() as conn:

        async def waiting() -> bool:
            return (await (await conn.execute(sql)).fetchone() or (0,))[0] >= waiters

        await eventually(waiting, f"{waiters} statements that wait for a lock")


async def until_waiting_or(database: Database, task: asyncio.Task[Any]) -> None:
    """Wait until the task waits for a lock or is done."""
    waits = asyncio.create_task(until_waiting(database))
    await asyncio.wait({task, waits}, return_when=asyncio.FIRST_COMPLETED)
    waits.cancel()


async def clear(conn: Connection) -> None:
    """Empty the tables of the queue, which is faster than a new database."""
    for table in (
        "delivery",
        "event",
        "chunk",
        "batch_delta",
        "sched_delta",
        "item_result",
        "item_payload",
        "batch",
        "handoff",
    ):
        await conn.execute(f"delete from {table}")
    for table in (
        "worker",
        "sched",
        "engine",
        "pool",
        "usage",
        "usage_day",
        "budget",
        "line",
        "removed_counts",
        "tenant",
    ):
        await conn.execute(f"delete from {table}")
