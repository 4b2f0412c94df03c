"""The steward's maintenance: partitions, refunds, delayed chunks."""

import asyncio

from app.db.pool import Database
from app.queue import chunk_sweeps, partitions, reaping, service
from tests.queue import support


async def test_partitions_are_created_ahead_once(database: Database) -> None:
    async with database.transaction() as conn:
        assert await partitions.create(conn, days_ahead=2) == []
        created = await partitions.create(conn, days_ahead=5)
    assert len(created) == 6
    assert len({name.rpartition("_")[2] for name in created}) == 3


async def test_two_stewards_can_create_partitions_at_once(database: Database) -> None:
    async def make() -> list[str]:
        async with database.transaction() as conn:
            return await partitions.create(conn, days_ahead=9)

    one, two = await asyncio.gather(make(), make())
    assert sorted([len(one), len(two)]) == [0, 14]


async def test_a_lost_lease_is_refunded_in_the_fair_order(database: Database) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    await support.submit(database, tenant, pool, 8, tokens=100)
    lost = await support.make_worker(database, pool, lease_seconds=0.05)
    async with database.durable() as conn:
        assert await support.claim(conn, pool, lost)
        charged = await (await conn.execute("select vtime, inflight_tokens from sched")).fetchone()
        await asyncio.sleep(0.1)
        await reaping.reap(conn)
        refunded = await (await conn.execute("select vtime, inflight_tokens from sched")).fetchone()
    assert (charged, refunded) == ((800.0, 800), (0.0, 0))


async def test_an_idle_account_saves_up_no_share(database: Database) -> None:
    """An account that was idle for long does not block the account that had work all the time."""
    async with database.durable() as conn:
        busy, late = await support.make_tenant(conn, "busy"), await support.make_tenant(conn, "late")
        pool = await support.make_pool(conn)
    worker = await support.make_worker(database, pool)
    await support.submit(database, busy, pool, 100, max_items=1)
    for _ in range(50):
        async with database.relaxed() as conn:
            lease = await support.claim(conn, pool, worker)
        assert lease is not None
        await support.run_chunk(database, lease)
    await support.submit(database, late, pool, 50, max_items=1)
    served = []
    for _ in range(20):
        async with database.relaxed() as conn:
            lease = await support.claim(conn, pool, worker)
        assert lease is not None
        served.append(lease.tenant_id)
        await support.run_chunk(database, lease)
    assert 8 <= served.count(busy) <= 12


async def test_returned_chunks_wait_for_their_backoff(database: Database) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    await support.submit(database, tenant, pool, 4)
    worker = await support.make_worker(database, pool)
    async with database.durable() as conn:
        lease = await support.claim(conn, pool, worker)
        assert lease is not None
        await service.finish(conn, lease, backoff_seconds=60)
        assert await chunk_sweeps.promote(conn) == 0
        assert await support.claim(conn, pool, worker) is None
        await conn.execute("update chunk set not_before = now() - interval '1 second'")
        assert await chunk_sweeps.promote(conn) == 1
        again = await support.claim(conn, pool, worker)
    assert again is not None
    assert (again.attempt, again.lo, again.hi, again.seqs) == (0, 0, 3, None)
