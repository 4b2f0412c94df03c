"""Chunks that were leased to a worker that no longer exists are taken back."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.db.pool import Connection, Database
from app.queue import reaping, reaping_sql, service
from tests.queue import support
from tests.queue.support import drain, make_pool, make_tenant, make_worker, settle, submit, until_waiting


async def chunks_after_a_late_claim(
    database: Database, pool: int, end: Callable[[Connection, int], Awaitable[None]]
) -> Any:
    """A claim waits for a lock, `end` removes its worker, the claim commits. Returns the states of the chunks after a reap."""
    worker = await make_worker(database, pool)
    async with database.relaxed() as claiming:
        async with database.transaction() as blocker:
            await blocker.execute("select from sched for update")
            claim = asyncio.create_task(support.claim(claiming, pool, worker))
            await until_waiting(database)
            async with database.relaxed() as conn:
                await end(conn, worker)
        await claim
    async with database.relaxed() as conn:
        await reaping.reap(conn)
        return await (await conn.execute("select state from chunk")).fetchall()


async def one_chunk(database: Database) -> int:
    """A pool with a batch of one chunk."""
    async with database.durable() as conn:
        tenant, pool = await make_tenant(conn), await make_pool(conn)
    await submit(database, tenant, pool, 4)
    return pool


async def test_a_claim_that_commits_after_its_worker_was_reaped_is_taken_back(database: Database) -> None:
    async def lose(conn: Connection, worker: int) -> None:
        await conn.execute("update worker set lease_until = now() - interval '1 second'")
        await reaping.reap(conn)

    pool = await one_chunk(database)
    assert await chunks_after_a_late_claim(database, pool, lose) == [("ready",)]
    assert len(await drain(database, pool, await make_worker(database, pool))) == 1
    assert len(await settle(database)) == 1


async def test_a_claim_that_commits_after_its_worker_has_retired_is_taken_back(database: Database) -> None:
    pool = await one_chunk(database)
    assert await chunks_after_a_late_claim(database, pool, service.retire_worker) == [("ready",)]


async def test_a_round_without_a_loss_only_looks(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = await one_chunk(database)
    async with database.relaxed() as conn:
        assert await support.claim(conn, pool, await make_worker(database, pool))
        monkeypatch.setattr(reaping_sql, "REAP", "not a statement")
        assert await reaping.reap(conn) == (0, 0)
