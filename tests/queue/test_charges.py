"""Claims about charges that are taken back: whoever returns was not killed by its work."""

from math import inf

import pytest

from app.db.pool import Database
from app.queue import charges, chunk_sweeps, reaping, service
from app.queue.lost_workers import WorkerWatch
from app.queue.poison import ChunkVerdict, verdict
from app.queue.types import Lease
from tests.queue import support

LIMIT = 4


@pytest.fixture
async def pool(database: Database) -> int:
    """The pool of a batch of four items in one chunk."""
    async with database.transaction() as conn:
        tenant, made = await support.make_tenant(conn), await support.make_pool(conn)
    await support.submit(database, tenant, made, 4)
    return made


async def claimed(database: Database, pool: int) -> Lease:
    """A chunk in the hands of a new worker."""
    worker = await support.make_worker(database, pool)
    async with database.relaxed() as conn:
        lease = await support.claim(conn, pool, worker)
    assert lease is not None
    return lease


async def lost(database: Database, worker: int) -> None:
    """The worker falls silent, and the steward counts it as lost."""
    async with database.relaxed() as conn:
        await conn.execute("update worker set lease_until = now() - interval '1 second' where worker_id = %s", [worker])
        assert await reaping.reap(conn, WorkerWatch(since=-inf, gap=inf)) == (1, 1)


async def take_back(database: Database, worker: int) -> int | None:
    async with database.relaxed() as conn:
        return await charges.take_back(conn, worker)


async def split(database: Database, lease: Lease) -> None:
    """Each item gets a chunk of its own; only the first one is left."""
    async with database.relaxed() as conn:
        assert await service.finish(conn, lease, split=True) is not None
        await conn.execute("delete from chunk where lo > 0")
        await conn.execute("update chunk set not_before = now()")
        assert await chunk_sweeps.promote(conn) == 1


async def attempts(database: Database) -> list[int]:
    async with database.relaxed() as conn:
        rows = await (await conn.execute("select attempt from chunk order by lo")).fetchall()
    return [row[0] for row in rows]


async def test_a_worker_that_returns_clears_its_chunks_and_one_that_was_started_again_does_not(
    database: Database, pool: int
) -> None:
    killed = await claimed(database, pool)
    await lost(database, killed.worker_id)
    again = await support.make_worker(database, pool)  # the same host, pid and name
    assert await take_back(database, again) is None
    assert await attempts(database) == [1]
    stopped = await claimed(database, pool)
    assert stopped.attempt == 1
    await lost(database, stopped.worker_id)
    assert await attempts(database) == [2]
    assert await take_back(database, stopped.worker_id) == 1
    assert await take_back(database, stopped.worker_id) == 0
    assert await attempts(database) == [1]


async def test_a_charge_is_taken_back_only_after_the_steward_has_made_it(database: Database, pool: int) -> None:
    lease = await claimed(database, pool)
    assert await take_back(database, lease.worker_id) is None
    await lost(database, lease.worker_id)
    assert await take_back(database, lease.worker_id) == 1
    assert await attempts(database) == [0]


async def test_a_chunk_that_another_worker_has_meanwhile_is_cleared_and_stays_with_it(
    database: Database, pool: int
) -> None:
    first = await claimed(database, pool)
    await lost(database, first.worker_id)
    second = await claimed(database, pool)
    assert await take_back(database, first.worker_id) == 1
    async with database.durable() as conn:
        items = await service.load(conn, second)
        assert await service.flush(conn, second, support.answers(items[:2]))
        assert await service.finish(conn, second) is not None
    assert await attempts(database) == [0]


async def test_what_was_split_meanwhile_is_cleared_in_all_its_parts(database: Database, pool: int) -> None:
    for _ in range(2):
        lease = await claimed(database, pool)
        await lost(database, lease.worker_id)
    third = await claimed(database, pool)
    assert verdict(third, 4, LIMIT) is ChunkVerdict.SPLIT
    async with database.relaxed() as conn:
        assert await service.finish(conn, third, split=True) is not None
    assert await attempts(database) == [2] * 4
    assert await take_back(database, lease.worker_id) == 4
    assert await attempts(database) == [1] * 4


async def test_a_charge_that_another_one_followed_stays(database: Database, pool: int) -> None:
    first = await claimed(database, pool)
    await lost(database, first.worker_id)
    second = await claimed(database, pool)
    await lost(database, second.worker_id)
    assert await take_back(database, first.worker_id) == 0
    assert await attempts(database) == [2]


async def test_an_item_that_stalls_its_worker_every_time_is_given_up_too(database: Database, pool: int) -> None:
    losses = 0
    for _ in range(20):
        lease = await claimed(database, pool)
        found = verdict(lease, lease.n, LIMIT)
        if found is ChunkVerdict.GIVE_UP:
            break
        if found is ChunkVerdict.SPLIT:
            await split(database, lease)
            continue
        await lost(database, lease.worker_id)
        assert await take_back(database, lease.worker_id) is not None
        losses += 1
    assert losses == LIMIT + charges.MOST
