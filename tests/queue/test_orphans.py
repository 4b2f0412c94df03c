"""Leases that no worker knows of: their chunks come back all the same."""

import asyncio

from app.db.pool import Database
from app.queue import maintenance, service
from tests.queue.support import drain, make_pool, make_tenant, make_worker, settle, submit


async def test_a_claim_that_commits_after_its_worker_was_reaped_is_taken_back(database: Database) -> None:
    """The claim waits for a row lock while its worker dies and is reaped; then it commits."""
    async with database.durable() as conn:
        tenant, pool = await make_tenant(conn), await make_pool(conn)
    await submit(database, tenant, pool, 4)
    worker = await make_worker(database, pool)
    async with database.relaxed() as claiming:
        async with database.transaction() as blocker:
            await blocker.execute("select from sched for update")
            claim = asyncio.create_task(service.claim(claiming, pool, worker))
            await asyncio.sleep(0.2)
            async with database.relaxed() as conn:
                await conn.execute("update worker set lease_until = now() - interval '1 second'")
                await maintenance.reap(conn)
        await claim
    async with database.relaxed() as conn:
        await maintenance.reap(conn)
        rows = await (await conn.execute("select state from chunk")).fetchall()
    assert rows == [("ready",)]
    assert len(await drain(database, pool, await make_worker(database, pool))) == 1
    assert len(await settle(database)) == 1


async def test_a_claim_that_commits_after_its_worker_has_retired_is_taken_back(database: Database) -> None:
    async with database.durable() as conn:
        tenant, pool = await make_tenant(conn), await make_pool(conn)
    await submit(database, tenant, pool, 4)
    worker = await make_worker(database, pool)
    async with database.relaxed() as claiming:
        async with database.transaction() as blocker:
            await blocker.execute("select from sched for update")
            claim = asyncio.create_task(service.claim(claiming, pool, worker))
            await asyncio.sleep(0.2)
            async with database.relaxed() as conn:
                await service.retire_worker(conn, worker)
        await claim
    async with database.relaxed() as conn:
        await maintenance.reap(conn)
        rows = await (await conn.execute("select state from chunk")).fetchall()
    assert rows == [("ready",)]
