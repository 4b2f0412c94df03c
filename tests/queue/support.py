"""Short ways to put a batch into the queue and to run it, for tests."""

import uuid
from collections.abc import Sequence

from app.db.pool import Connection, Database
from app.queue import care, ingest, rows, service
from app.queue.cutting import cut
from app.queue.types import Item, Lease, Result


async def make_tenant(conn: Connection, account: str = "acme", weight: float = 1.0) -> int:
    """A tenant id."""
    sql = """insert into tenant (tenant_id, account_id, name, weight)
             select coalesce(max(tenant_id), 0) + 1, %s, %s, %s from tenant returning tenant_id"""
    row = await (await conn.execute(sql, (account, account, weight))).fetchone()
    assert row
    return int(row[0])


async def make_pool(conn: Connection, model: str = "toy") -> int:
    """A pool id."""
    row = await (await conn.execute("insert into pool (model) values (%s) returning pool_id", (model,))).fetchone()
    assert row
    return int(row[0])


async def submit(
    database: Database, tenant: int, pool: int, items: int, *, tokens: int = 100, max_items: int = 16
) -> ingest.NewBatch:
    """A batch of `items` small items."""
    async with database.transaction() as conn:
        batch_id = await ingest.next_batch_id(conn)
        batch = ingest.NewBatch(batch_id, uuid.uuid4(), tenant, pool, "toy", "/v1/chat/completions", items, 86_400)
        payload = [rows.HEADER]
        payload += [
            rows.payload_row(batch_id, seq, f"ref-{seq}", None, tokens, b'{"prompt": "%d"}' % seq)
            for seq in range(items)
        ]
        payload.append(rows.TRAILER)
        await ingest.enqueue(conn, batch, payload, cut([tokens] * items, max_tokens=16_000, max_items=max_items))
    return batch


async def make_worker(database: Database, pool: int, lease_seconds: float = 30) -> int:
    """A registered worker id."""
    async with database.durable() as conn:
        return await service.register_worker(conn, pool_id=pool, host="test", pid=1, lease_seconds=lease_seconds)


def answers(items: Sequence[Item], ok: bool = True) -> list[Result]:
    """A result for each item: 3 prompt tokens, 1 cached, 5 completion."""
    return [Result(item.seq, ok, 1, 3, 1, 5, b'{"n": %d}' % item.seq) for item in items]


async def run_chunk(database: Database, lease: Lease) -> None:
    """Load, flush and finish a leased chunk."""
    async with database.durable() as conn:
        items = await service.load(conn, lease)
        assert await service.flush(conn, lease, answers(items))
        assert await service.finish(conn, lease) is not None


async def drain(database: Database, pool: int, worker: int) -> list[Lease]:
    """Run chunks until there is none; the leases in the order of their claims."""
    leases = []
    while True:
        async with database.relaxed() as conn:
            lease = await service.claim(conn, pool, worker)
        if lease is None:
            return leases
        leases.append(lease)
        await run_chunk(database, lease)


async def settle(database: Database) -> list[care.Settled]:
    """One fold-and-finalise round."""
    async with database.transaction() as conn:
        return await care.settle(conn)


async def caches(conn: Connection) -> list[tuple[int, int]]:
    """(ready, in-flight tokens) of every scheduler row; all zero when nothing is open."""
    return [tuple(row) for row in await (await conn.execute("select ready, inflight_tokens from sched")).fetchall()]
