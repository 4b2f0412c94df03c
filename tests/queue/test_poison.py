"""Items that kill their engine or worker: how often they can, and that other items still get their answers."""

import random

import pytest

from app.db.pool import Database
from app.queue import chunk_sweeps, poison, reads, reaping, service
from app.queue.poison import SUSPECT_ATTEMPTS, ChunkVerdict
from app.queue.types import Lease, Result
from tests.queue import support

LIMIT = 4


def lease(attempt: int, deaths: int = 0) -> Lease:
    return Lease(1, 1, 1, 1, 1, 1, 0, 9, None, 10, 100, attempt, deaths)


@pytest.mark.parametrize(
    ("attempt", "unfinished", "expected"),
    [
        (0, 10, ChunkVerdict.RUN),
        (1, 10, ChunkVerdict.RUN),
        (1, 1, ChunkVerdict.RUN),
        (2, 10, ChunkVerdict.SPLIT),
        (9, 2, ChunkVerdict.SPLIT),
        (2, 1, ChunkVerdict.ALONE),
        (3, 1, ChunkVerdict.ALONE),
        (4, 1, ChunkVerdict.GIVE_UP),
        (9, 1, ChunkVerdict.GIVE_UP),
        (9, 0, ChunkVerdict.RUN),
    ],
)
def test_only_an_item_that_was_alone_is_given_up(attempt: int, unfinished: int, expected: ChunkVerdict) -> None:
    assert poison.verdict(lease(attempt), unfinished, LIMIT) is expected


@pytest.mark.parametrize(
    ("deaths", "attempt", "expected"),
    [
        (0, 0, ChunkVerdict.RUN),
        (1, 0, ChunkVerdict.ALONE),
        (1, 3, ChunkVerdict.ALONE),
        (2, 0, ChunkVerdict.GIVE_UP),
        (1, 4, ChunkVerdict.GIVE_UP),
    ],
)
def test_a_suspect_runs_alone_and_is_given_up_at_the_second_death(
    deaths: int, attempt: int, expected: ChunkVerdict
) -> None:
    assert poison.verdict(lease(attempt, deaths), 1, LIMIT) is expected


async def test_the_death_of_an_engine_charges_only_its_items_and_a_transient_error_delays_its_items(
    database: Database,
) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    await support.submit(database, tenant, pool, 8, tokens=100)
    worker = await support.make_worker(database, pool)
    held = await claimed(database, pool, worker)
    async with database.durable() as conn:
        items = await service.load(conn, held)
        assert await service.flush(conn, held, support.answers(items[:2]))
        assert await service.finish(conn, held, suspects=[0, 3, 4], retried=[6, 7], retry_seconds=60)
        rows = await conn.execute(
            "select lo, hi, seqs, n, est_tokens, deaths, retries, not_before > now() + interval '1 min' * 0.9"
            " from chunk order by lo"
        )
        assert await rows.fetchall() == [
            (2, 5, [2, 5], 2, 200, 0, 0, False),
            (3, 3, None, 1, 100, 1, 0, False),
            (4, 4, None, 1, 100, 1, 0, False),
            (6, 7, None, 2, 200, 0, 1, True),
        ]


async def claimed(database: Database, pool: int, worker: int) -> Lease:
    async with database.relaxed() as conn:
        found = await support.claim(conn, pool, worker)
    assert found is not None
    return found


async def test_a_split_gives_each_item_its_own_chunk_with_its_own_estimate(database: Database) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    await support.submit(database, tenant, pool, 6, tokens=100)
    worker = await support.make_worker(database, pool)
    async with database.durable() as conn:
        await conn.execute("update item_payload set est_tokens = 100 + seq")
        await conn.execute("update chunk set attempt = 7")
    held = await claimed(database, pool, worker)
    async with database.durable() as conn:
        items = await service.load(conn, held)
        assert await service.flush(conn, held, support.answers(items[:2]))
        finished = await service.finish(conn, held, split=True)
        assert finished is not None
        assert (finished.done, finished.returned) == (2, 4)
        rows = await conn.execute("select lo, hi, seqs, n, est_tokens, attempt, done from chunk order by lo")
        assert await rows.fetchall() == [(seq, seq, None, 1, 100 + seq, SUSPECT_ATTEMPTS, 0) for seq in range(2, 6)]
        await chunk_sweeps.promote(conn)
    assert len(await support.drain(database, pool, worker)) == 4
    [settled] = await support.settle(database)
    assert settled.ok == 6
    async with database.durable() as conn:
        assert await support.caches(conn) == [(0, 0)]


class Killed(Exception):
    """The worker died."""


async def hold(database: Database, pool: int, killers: set[int], chance: random.Random) -> bool:
    """Run one chunk as the puller does. False: there is none. Raises Killed."""
    worker = await support.make_worker(database, pool)
    async with database.durable() as conn:
        held = await support.claim(conn, pool, worker)
        if held is None:
            return False
        items = await service.load(conn, held)
        verdict = poison.verdict(held, len(items), LIMIT)
        if verdict is ChunkVerdict.SPLIT:
            assert await service.finish(conn, held, split=True)
            return True
        if verdict is ChunkVerdict.GIVE_UP:
            results = [Result(items[0].seq, False, held.attempt, 0, 0, 0, poison.give_up_message(held).encode())]
        else:
            stored = [item for item in items if item.seq not in killers and chance.random() < 0.3]
            await service.flush(conn, held, support.answers(stored))
            if killers & {item.seq for item in items}:
                raise Killed
            results = support.answers([item for item in items if chance.random() < 0.8])
        for _ in range(chance.choice([1, 2])):
            assert await service.flush(conn, held, results)
        assert await service.finish(conn, held)
    return True


@pytest.mark.parametrize("seed", range(4))
async def test_whoever_dies_when_nothing_is_lost_and_deaths_are_few(database: Database, seed: int) -> None:
    """Some items always kill their worker. Other leases end early, or flush their results twice."""
    chance = random.Random(seed)
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    batch = await support.submit(database, tenant, pool, 40, max_items=8)
    killers = set(chance.sample(range(40), 3))
    deaths, seen, more, settled = 0, (0, 0), True, []
    while more:
        try:
            more = await hold(database, pool, killers, chance)
        except Killed:
            deaths += 1
            async with database.durable() as conn:
                await conn.execute("update worker set lease_until = now() - interval '1 second'")
                await reaping.reap(conn)
        async with database.durable() as conn:
            more = bool(await chunk_sweeps.promote(conn)) or more
        settled += await support.settle(database) if chance.random() < 0.5 else []
        status = await reads.status(database, tenant, batch.request_id)
        assert status is not None
        assert status.started
        assert status.ok >= seen[0]
        assert status.failed >= seen[1]
        seen = (status.ok, status.failed)
    settled += await support.settle(database)
    assert [(one.ok, one.failed) for one in settled] == [(37, 3)]
    pages = [page async for page in reads.results(database, batch.batch_id, 1)]
    assert {item.seq for page in pages for item in page if not item.ok} == killers
    assert deaths <= LIMIT * len(killers)
    async with database.durable() as conn:
        assert await support.caches(conn) == [(0, 0)]
