"""The counts of a running batch in a poll: they never go backwards, and count nothing twice."""

import asyncio

import pytest

from app.db.pool import Database
from app.queue import chunk_sweeps, ingest, reads, reaping, service
from tests.queue import support


async def _started(database: Database, items: int) -> tuple[int, int, ingest.NewBatch]:
    """Tenant, pool and a batch of one chunk."""
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    return tenant, pool, await support.submit(database, tenant, pool, items)


async def _seen(database: Database, tenant: int, batch: ingest.NewBatch) -> tuple[bool, int, int]:
    status = await reads.status(database, tenant, batch.request_id)
    assert status is not None
    return status.started, status.ok, status.failed


async def test_results_stored_before_a_death_stay_counted(database: Database) -> None:
    tenant, pool, batch = await _started(database, 10)
    assert await _seen(database, tenant, batch) == (False, 0, 0)
    dead = await support.make_worker(database, pool, lease_seconds=0.05)
    async with database.durable() as conn:
        lease = await support.claim(conn, pool, dead)
        assert lease is not None
        items = await service.load(conn, lease)
        await service.flush(conn, lease, support.answers(items[:5]) + support.answers(items[5:7], ok=False))
        assert await _seen(database, tenant, batch) == (True, 5, 2)
        await asyncio.sleep(0.1)
        await reaping.reap(conn)
        assert await _seen(database, tenant, batch) == (True, 5, 2)
        again = await support.claim(conn, pool, await support.make_worker(database, pool))
        assert again is not None
        assert await _seen(database, tenant, batch) == (True, 5, 2)
        await service.flush(conn, again, support.answers(await service.load(conn, again)))
        assert await _seen(database, tenant, batch) == (True, 8, 2)
        await service.finish(conn, again)
    assert await _seen(database, tenant, batch) == (True, 8, 2)
    await support.settle(database)
    assert await _seen(database, tenant, batch) == (True, 8, 2)


async def test_a_flush_repeated_after_a_lost_answer_counts_once(database: Database) -> None:
    tenant, pool, batch = await _started(database, 4)
    worker = await support.make_worker(database, pool)
    async with database.durable() as conn:
        lease = await support.claim(conn, pool, worker)
        assert lease is not None
        items = await service.load(conn, lease)
        assert await service.flush(conn, lease, support.answers(items[:3]))
        assert await service.flush(conn, lease, support.answers(items))
        assert await service.flush(conn, lease, support.answers(items, ok=False))
    assert await _seen(database, tenant, batch) == (True, 4, 0)


async def test_a_batch_that_has_run_stays_running_when_all_its_chunks_are_returned(database: Database) -> None:
    tenant, pool, batch = await _started(database, 4)
    worker = await support.make_worker(database, pool)
    async with database.durable() as conn:
        lease = await support.claim(conn, pool, worker)
        assert lease is not None
        await service.finish(conn, lease)
        assert await _seen(database, tenant, batch) == (True, 0, 0)
        await support.settle(database)
        await chunk_sweeps.promote(conn)
    assert await _seen(database, tenant, batch) == (True, 0, 0)


@pytest.mark.holds_accounts
async def test_a_late_flush_that_waited_for_the_reaper_stores_nothing(database: Database) -> None:
    """The flush waits for the lock on the chunk's row. When it gets the lock, the lease is lost."""
    tenant, pool, batch = await _started(database, 4)
    worker = await support.make_worker(database, pool)
    async with database.relaxed() as conn:
        lease = await support.claim(conn, pool, worker)
        assert lease is not None
        items = await service.load(conn, lease)
        async with database.transaction() as reaper:
            await reaper.execute("update worker set lease_until = now() - interval '1 second'")
            await reaping.reap(reaper)
            late = asyncio.create_task(service.flush(conn, lease, support.answers(items)))
            await asyncio.sleep(0.2)
            assert not late.done()
        assert not await late
    assert await _seen(database, tenant, batch) == (True, 0, 0)
