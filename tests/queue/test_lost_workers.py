"""Which losses of workers are charged: the rule by cases and at random, and on a real server that is stopped."""

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.db import embedded
from app.db.pool import Database
from app.queue import partitions, reaping
from app.queue.lost_workers import SPARED_SECONDS, Heartbeat, WorkerWatch, lost_alone
from app.queue.poison import ChunkVerdict, verdict
from app.settings import Settings
from testing.waiting import eventually
from tests.queue import support
from workers.steward import __main__ as steward
from workers.steward.rounds import Rounds

LEASE, GAP, START = 10.0, 5.0, 0.0


def beat(worker_id: int, renewed_at: float, started_at: float = 0.0) -> Heartbeat:
    return Heartbeat(worker_id, started_at, renewed_at, renewed_at + LEASE)


def watching(until: float, workers: list[Heartbeat], *, begun: float = 0.0) -> WorkerWatch:
    """A steward that ran a round every second."""
    watch, now = WorkerWatch(GAP), begun
    while now < until:
        watch.judge(now, START, [])
        now += 1
    return watch


@pytest.mark.parametrize(
    ("lost", "others", "expected"),
    [
        pytest.param(beat(1, 100), [], True, id="the only worker"),
        pytest.param(beat(1, 100), [beat(2, 110)], True, id="one of two"),
        pytest.param(beat(1, 100), [beat(2, 101)], False, id="both of two"),
        pytest.param(beat(1, 100), [beat(2, 96), beat(3, 110)], False, id="two of three"),
        pytest.param(beat(1, 100), [beat(2, 101), beat(3, 110), beat(4, 109)], True, id="half of four"),
        pytest.param(beat(1, 100), [beat(2, 101), beat(3, 110, 107)], False, id="who came after it tells nothing"),
        pytest.param(beat(1, 100), [beat(2, 60)], True, id="who was lost long before tells nothing"),
    ],
)
def test_a_worker_is_lost_alone_unless_a_majority_fell_silent_at_the_same_time(
    lost: Heartbeat, others: list[Heartbeat], expected: bool
) -> None:
    assert lost_alone(lost, [lost, *others]) is expected


def test_a_worker_that_is_lost_alone_is_charged() -> None:
    lost = beat(1, 100)
    assert watching(111, [lost]).judge(111, START, [lost, beat(2, 110)]) == ([1], [1])


def test_the_loss_of_the_only_worker_is_always_charged() -> None:
    watch = watching(100, [])
    for n in range(4):
        lost = beat(n, 100 + 20 * n)
        for second in range(12):
            found = watch.judge(100 + 20 * n + second, START, [lost])
        assert found == ([n], [n])
        for second in range(12, 20):
            watch.judge(100 + 20 * n + second, START, [])


@pytest.mark.parametrize(
    ("watch", "server_start"),
    [
        pytest.param(watching(103, []), START, id="the steward did not reach it either"),
        pytest.param(WorkerWatch(GAP), START, id="the steward has just begun"),
        pytest.param(watching(111, []), 104.0, id="the server has started since"),
    ],
)
def test_no_loss_is_charged_if_the_database_did_not_answer_meanwhile(watch: WorkerWatch, server_start: float) -> None:
    assert watch.judge(111, server_start, [beat(1, 100), beat(2, 110)]) == ([1], [])


def test_workers_lost_together_are_spared_even_if_they_lapse_one_by_one_and_only_once_an_hour() -> None:
    watch, charged = watching(100, []), []
    for start in (100.0, 150.0, 150.0 + SPARED_SECONDS):
        workers = [beat(n, start + n) for n in range(4)]
        watch.since = min(watch.since, start)
        watch._last_look = start
        for second in range(16):
            lapsed, blamed = watch.judge(start + second, START, workers)
            workers = [worker for worker in workers if worker.worker_id not in lapsed]
            charged += [(start, worker) for worker in blamed]
    assert charged == [(150.0, n) for n in range(4)]


def test_a_steward_whose_rounds_are_long_charges_as_ever_while_the_database_answers_it_between() -> None:
    watch = watching(100, [])
    for second in range(100, 111):
        watch.look(second, START)
    assert watch.judge(111, START, [beat(1, 100), beat(2, 110)]) == ([1], [1])


def test_a_clock_that_jumps_ahead_charges_nobody_and_from_then_on_losses_are_charged_as_ever() -> None:
    watch, ahead = watching(100, []), 3600.0
    assert watch.judge(100 + ahead, START, [beat(1, 99), beat(2, 99)]) == ([1, 2], [])
    for second in range(12):
        found = watch.judge(100 + ahead + second, START, [beat(3, 100 + ahead), beat(4, 109 + ahead)])
    assert found == ([3], [3])


def test_a_clock_that_was_put_back_charges_as_ever_after_a_lease() -> None:
    watch = watching(10_000, [])
    watch.put_back = False  # as once its first round is over
    for second in range(112):
        watch.judge(100 + second, 9_000.0, [])
        assert watch.put_back
    assert watch.judge(212, 9_000.0, [beat(1, 200), beat(2, 211)]) == ([1], [1])


async def test_the_leading_steward_looks_at_the_database_while_a_round_takes_long(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    stopping = asyncio.Event()

    async def long_step(_: Rounds) -> None:
        await eventually(lambda: len(looks) >= 3)
        stopping.set()

    monkeypatch.setattr(Rounds, "_correct_held_deliveries", long_step)
    monkeypatch.setattr(WorkerWatch, "look", lambda *facts: looks.append(facts))
    await steward.run(settings.model_copy(update={"lease_seconds": 0.2}), stopping)


@given(st.lists(st.floats(0, 300), min_size=1, max_size=8), st.floats(0, 300))
def test_only_lapsed_workers_whose_whole_last_lease_was_watched_are_charged(
    renewals: list[float], begun: float
) -> None:
    workers = [beat(n, renewed) for n, renewed in enumerate(renewals)]
    lapsed, charged = watching(301, workers, begun=begun).judge(301, START, workers)
    assert lapsed == [worker.worker_id for worker in workers if worker.lease_until < 301]
    assert set(charged) <= {n for n in lapsed if renewals[n] >= begun}
    if len(workers) == 1 and lapsed and renewals[0] >= begun + 1:
        assert charged == lapsed


# ---------------------------------------------------------------- a server that is really stopped


@pytest.fixture
def own_server(stoppable_server: Settings) -> Settings:
    """An embedded server that may be stopped."""
    return stoppable_server.model_copy(update={"lease_seconds": 2, "heartbeat_seconds": 0.5})


async def round_of(database: Database, watch: WorkerWatch) -> None:
    async with database.relaxed() as conn:
        await reaping.reap(conn, watch)


async def leased(database: Database) -> bool:
    async with database.relaxed() as conn:
        return await (await conn.execute("select from chunk where state = 'leased'")).fetchone() is not None


async def attempts(database: Database) -> list[int]:
    async with database.relaxed() as conn:
        rows = await (await conn.execute("select attempt from chunk order by chunk_id")).fetchall()
    return [row[0] for row in rows]


async def test_four_outages_of_the_database_charge_no_chunk_and_bury_no_item(own_server: Settings) -> None:
    """There is one worker, so that only the outage can spare it."""
    url, watch = embedded.database_url(own_server), WorkerWatch(own_server.lease_seconds / 2)
    async with Database(url, size=2) as database:
        async with database.transaction() as conn:
            await partitions.create(conn, days_ahead=1)
            tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
        await support.submit(database, tenant, pool, 1)
    for _ in range(4):
        async with Database(url, size=2) as database:
            await round_of(database, watch)
            worker = await support.make_worker(database, pool, lease_seconds=2)
            async with database.relaxed() as conn:
                lease = await support.claim(conn, pool, worker)
            assert lease is not None
            assert verdict(lease, 1, own_server.item_attempts) == ChunkVerdict.RUN
            async with database.durable() as conn:
                await conn.execute("update tenant set name = name")  # its commit takes that of the claim to the disk
        await asyncio.to_thread(embedded.stop, own_server, "immediate")
        await asyncio.to_thread(embedded.start, own_server)
        async with Database(url, size=2) as database:
            assert await leased(database)
            await _until_reaped(database, watch)
            assert await attempts(database) == [0]


async def test_an_item_that_kills_the_only_worker_is_given_up_though_the_database_restarts_once(
    own_server: Settings,
) -> None:
    url, watch = embedded.database_url(own_server), WorkerWatch(60)
    async with Database(url, size=2) as database:
        async with database.transaction() as conn:
            await partitions.create(conn, days_ahead=1)
            tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
        await support.submit(database, tenant, pool, 1)
    found = []
    for n in itertools.count():
        async with Database(url, size=2) as database:
            await round_of(database, watch)
            worker = await support.make_worker(database, pool, lease_seconds=0.3)
            async with database.relaxed() as conn:
                lease = await support.claim(conn, pool, worker)
            assert lease is not None
            found.append(verdict(lease, 1, own_server.item_attempts))
            if found[-1] == ChunkVerdict.GIVE_UP:
                break
            if n != 1:
                await _until_reaped(database, watch)
        if n == 1:
            await asyncio.to_thread(embedded.stop, own_server, "immediate")
            await asyncio.to_thread(embedded.start, own_server)
            async with Database(url, size=2) as database:
                await _until_reaped(database, watch)
    assert found.count(ChunkVerdict.ALONE) >= 2
    assert len(found) == own_server.item_attempts + 2  # one loss was not charged


async def _until_reaped(database: Database, watch: WorkerWatch) -> None:
    async def states() -> list[str]:
        found = await _states(database)
        await round_of(database, watch)
        return found

    await eventually(states, until=lambda found: found == ["ready"])


async def _states(database: Database) -> list[str]:
    async with database.relaxed() as conn:
        return [row[0] for row in await (await conn.execute("select state from chunk")).fetchall()]
