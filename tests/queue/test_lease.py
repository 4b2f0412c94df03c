"""The chunk lease: which worker may write, what is never repeated, and what is never lost."""

import asyncio

from app.db.pool import Database
from app.queue import chunk_sweeps, reads, reaping, service
from app.states import BatchState
from tests.queue import support


async def _world(database: Database) -> tuple[int, int]:
    async with database.durable() as conn:
        return await support.make_tenant(conn), await support.make_pool(conn)


async def test_a_batch_runs_to_completion_and_every_item_has_one_result(database: Database) -> None:
    tenant, pool = await _world(database)
    batch = await support.submit(database, tenant, pool, 50)
    worker = await support.make_worker(database, pool)
    leases = await support.drain(database, pool, worker)
    assert [(lease.lo, lease.hi) for lease in leases] == [(0, 15), (16, 31), (32, 47), (48, 49)]
    [settled] = await support.settle(database)
    assert (settled.state, settled.ok, settled.failed, settled.completion_tokens) == (BatchState.COMPLETED, 50, 0, 250)
    pages = [page async for page in reads.results(database, batch.batch_id, 1, page=20)]
    assert [item.seq for page in pages for item in page] == list(range(50))
    async with database.durable() as conn:
        assert await support.caches(conn) == [(0, 0)]


async def test_two_workers_never_hold_the_same_chunk(database: Database) -> None:
    tenant, pool = await _world(database)
    await support.submit(database, tenant, pool, 64, max_items=1)
    first, second = await support.make_worker(database, pool), await support.make_worker(database, pool)

    async def take(worker: int) -> list[int]:
        taken = []
        while True:
            async with database.relaxed() as conn:
                lease = await support.claim(conn, pool, worker)
            if lease is None:
                return taken
            taken.append(lease.chunk_id)

    one, two = await asyncio.gather(take(first), take(second))
    assert len(set(one) | set(two)) == len(one) + len(two) == 64


async def test_a_reaped_worker_can_neither_flush_nor_finish(database: Database) -> None:
    tenant, pool = await _world(database)
    await support.submit(database, tenant, pool, 4)
    zombie = await support.make_worker(database, pool, lease_seconds=0.05)
    async with database.durable() as conn:
        lease = await support.claim(conn, pool, zombie)
        assert lease is not None
        items = await service.load(conn, lease)
        await asyncio.sleep(0.1)
        assert await reaping.reap(conn) == (1, 1)
        assert await support.beat(conn, zombie, 30) is None
        assert not await service.flush(conn, lease, support.answers(items))
        assert await service.finish(conn, lease) is None
        assert await support.claim(conn, pool, zombie) is None
        heir = await support.make_worker(database, pool)
        again = await support.claim(conn, pool, heir)
        assert again is not None
        assert again.attempt == 1
        assert again.token > lease.token
        assert not await service.flush(conn, lease, support.answers(items))
        assert await service.finish(conn, lease) is None
        assert len(await service.load(conn, again)) == 4


async def test_an_older_token_is_refused_although_worker_and_chunk_are_the_same(database: Database) -> None:
    """As after a server crash that lost a claim, after which the same worker claimed the chunk again."""
    tenant, pool = await _world(database)
    await support.submit(database, tenant, pool, 4)
    worker = await support.make_worker(database, pool)
    async with database.durable() as conn:
        lease = await support.claim(conn, pool, worker)
        assert lease is not None
        items = await service.load(conn, lease)
        await conn.execute("update chunk set token = token + 1")
        assert not await service.flush(conn, lease, support.answers(items))
        assert await service.finish(conn, lease) is None


async def test_items_flushed_before_a_death_are_not_loaded_again(database: Database) -> None:
    tenant, pool = await _world(database)
    await support.submit(database, tenant, pool, 10)
    dead = await support.make_worker(database, pool, lease_seconds=0.05)
    async with database.durable() as conn:
        lease = await support.claim(conn, pool, dead)
        assert lease is not None
        items = await service.load(conn, lease)
        assert await service.flush(conn, lease, support.answers(items[:7]))
        await asyncio.sleep(0.1)
        await reaping.reap(conn)
        heir = await support.make_worker(database, pool)
        again = await support.claim(conn, pool, heir)
        assert again is not None
        assert [item.seq for item in await service.load(conn, again)] == [7, 8, 9]
        await support.run_chunk(database, again)
    [settled] = await support.settle(database)
    assert (settled.ok, settled.completion_tokens) == (10, 50)


async def test_finishing_early_gives_the_rest_back_and_loses_nothing(database: Database) -> None:
    tenant, pool = await _world(database)
    await support.submit(database, tenant, pool, 10)
    worker = await support.make_worker(database, pool)
    async with database.durable() as conn:
        lease = await support.claim(conn, pool, worker)
        assert lease is not None
        items = await service.load(conn, lease)
        kept = [item for item in items if item.seq not in (2, 5)]
        assert await service.flush(conn, lease, support.answers(kept))
        finished = await service.finish(conn, lease)
        assert finished is not None
        assert (finished.done, finished.returned) == (8, 2)
        assert await support.settle(database) == []
        assert await chunk_sweeps.promote(conn) == 1
    [rest] = await support.drain(database, pool, worker)
    assert (rest.seqs, rest.n, rest.attempt) == ([2, 5], 2, 0)
    [settled] = await support.settle(database)
    assert settled.ok == 10
    async with database.durable() as conn:
        assert await support.caches(conn) == [(0, 0)]


async def test_the_first_result_of_an_item_wins(database: Database) -> None:
    tenant, pool = await _world(database)
    batch = await support.submit(database, tenant, pool, 1)
    worker = await support.make_worker(database, pool)
    async with database.durable() as conn:
        lease = await support.claim(conn, pool, worker)
        assert lease is not None
        items = await service.load(conn, lease)
        assert await service.flush(conn, lease, support.answers(items))
        assert await service.flush(conn, lease, support.answers(items, ok=False))
        await service.finish(conn, lease)
    [page] = [page async for page in reads.results(database, batch.batch_id, 1)]
    assert [item.ok for item in page] == [True]


async def test_a_batch_in_which_nothing_succeeded_has_failed(database: Database) -> None:
    tenant, pool = await _world(database)
    await support.submit(database, tenant, pool, 3)
    worker = await support.make_worker(database, pool)
    async with database.durable() as conn:
        lease = await support.claim(conn, pool, worker)
        assert lease is not None
        assert await service.flush(conn, lease, support.answers(await service.load(conn, lease), ok=False))
        await service.finish(conn, lease)
    [settled] = await support.settle(database)
    assert (settled.state, settled.failed) == (BatchState.FAILED, 3)


async def test_shares_follow_weights_while_both_tenants_have_work(database: Database) -> None:
    async with database.durable() as conn:
        light, heavy = await support.make_tenant(conn, "light", 1), await support.make_tenant(conn, "heavy", 2)
        pool = await support.make_pool(conn)
    await support.submit(database, light, pool, 400, tokens=8, max_items=1)
    await support.submit(database, heavy, pool, 400, tokens=8, max_items=1)
    worker = await support.make_worker(database, pool)
    claimed = []
    for _ in range(150):
        async with database.relaxed() as conn:
            lease = await support.claim(conn, pool, worker)
        assert lease is not None
        claimed.append(lease.tenant_id)
        await support.run_chunk(database, lease)
    assert abs(claimed.count(heavy) / len(claimed) - 2 / 3) < 0.02


async def test_a_late_tenant_is_served_next_behind_a_flood(database: Database) -> None:
    async with database.durable() as conn:
        flood, late = await support.make_tenant(conn, "flood"), await support.make_tenant(conn, "late")
        pool = await support.make_pool(conn)
    await support.submit(database, flood, pool, 200, max_items=1)
    worker = await support.make_worker(database, pool)
    for _ in range(20):
        async with database.relaxed() as conn:
            lease = await support.claim(conn, pool, worker)
        assert lease is not None
        await support.run_chunk(database, lease)
    await support.submit(database, late, pool, 1)
    order = []
    for _ in range(3):
        async with database.relaxed() as conn:
            lease = await support.claim(conn, pool, worker)
        assert lease is not None
        order.append(lease.tenant_id)
    assert late in order[:2]


async def test_a_newcomer_has_no_advantage_over_a_tenant_that_was_served_before(database: Database) -> None:
    """The account that was served a lot is idle when the newcomer submits; then both have work."""
    async with database.durable() as conn:
        old, new = await support.make_tenant(conn, "old"), await support.make_tenant(conn, "new")
        pool = await support.make_pool(conn)
    worker = await support.make_worker(database, pool)
    await support.submit(database, old, pool, 16)
    await support.drain(database, pool, worker)
    async with database.durable() as conn:
        await conn.execute("update sched set vtime = 1e6")
    await support.submit(database, new, pool, 160)
    await support.submit(database, old, pool, 160)
    leases = await support.drain(database, pool, worker)
    assert [lease.tenant_id for lease in leases[:10]].count(old) == 5
