"""Estimates of a batch's end."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from app.db.pool import Database
from app.queue import pace_log, reads, service
from app.queue.estimate import LEAST_SECONDS, Confidence, Estimate, Gate, Missing, Outlook, estimate
from app.states import BatchState, EngineState
from tests.queue import support

NOW = datetime(2026, 11, 21, tzinfo=UTC)
OPEN_GATE = Gate(1, "e", EngineState.READY, 8, "open", None, None, None, NOW, NOW, alive=True)
CLOSED_GATE = replace(OPEN_GATE, allowance=0, reason="closed_sync_waiting")
DOWN_GATE = replace(CLOSED_GATE, state=EngineState.DOWN, reason="engine_down")
DRAINED_GATE = replace(CLOSED_GATE, reason="draining", drained=True)
PLACE = Outlook(
    (OPEN_GATE,), NOW, ready=3, leased=0, delayed=0, held=0, pause=None, own_tokens=600.0, ahead_chunks=3, ahead_tokens=400.0,
    weight=1.0, others=((1.0, 1e6),), pace=20.0, spread=0.1, pool_inflight=0, inflight=0, limit=1000,
)  # fmt: skip


def test_the_eta_is_the_tokens_ahead_and_of_the_batch_at_the_accounts_share_of_the_pace() -> None:
    found = estimate(BatchState.OPEN, PLACE)
    assert (found.position, found.eta_seconds, found.tokens_per_second) == (3, 100.0, 10.0)
    assert found.confidence is Confidence.HIGH


def test_no_forecast_is_shorter_than_one_short_item_takes() -> None:
    assert estimate(BatchState.OPEN, replace(PLACE, pace=1e6, others=())).eta_seconds == LEAST_SECONDS
    assert reads.Prospect(pace=1e6, engines=1).seconds(1) == LEAST_SECONDS


@pytest.mark.parametrize(
    ("state", "outlook", "missing"),
    [
        (BatchState.OPEN, PLACE, None),
        (BatchState.PAUSED, replace(PLACE, gates=(), pace=None), Missing.STATE),
        (BatchState.OPEN, replace(PLACE, gates=(DOWN_GATE,), pace=None), Missing.ENGINE),
        (BatchState.OPEN, replace(PLACE, pace=None), Missing.PACE),
        (BatchState.OPEN, replace(PLACE, pace=0.0), Missing.STILL),
    ],
)
def test_without_an_eta_an_estimate_says_why(state: BatchState, outlook: Outlook, missing: Missing | None) -> None:
    found = estimate(state, outlook)
    assert (found.missing, found.eta_seconds is None) == (missing, missing is not None)


@pytest.mark.parametrize(
    ("others", "seconds"),
    [
        ((), 50),
        (((1.0, 200.0),), 60),  # has little work, is done first, and then leaves us the whole pool
        (((1.0, 200.0), (3.0, 1e6)), 210),
        (((0.5, 1e6),), 75),
    ],
)
def test_other_accounts_slow_a_batch_as_long_as_they_have_work(
    others: tuple[tuple[float, float], ...], seconds: float
) -> None:
    assert estimate(BatchState.OPEN, replace(PLACE, others=others)).eta_seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("gates", "seconds"),
    [
        ((OPEN_GATE, replace(DOWN_GATE, expected_seconds=30.0)), 100),
        ((replace(DOWN_GATE, expected_seconds=30.0),), 130),
        ((replace(DOWN_GATE, expected_seconds=30.0), replace(DOWN_GATE, expected_seconds=8.0), DOWN_GATE), 108),
        ((CLOSED_GATE,), 100),
        ((DOWN_GATE,), None),
        ((replace(DOWN_GATE, expected_seconds=30.0, alive=False),), None),
        ((), None),
        ((DRAINED_GATE,), None),
        ((DRAINED_GATE, replace(DOWN_GATE, drained=True, expected_seconds=30.0)), None),
        ((DRAINED_GATE, OPEN_GATE), 100),
        ((DRAINED_GATE, replace(DOWN_GATE, expected_seconds=30.0)), 130),
    ],
)
def test_the_eta_includes_the_start_of_an_engine_and_without_an_engine_there_is_none(
    gates: tuple[Gate, ...], seconds: float | None
) -> None:
    assert estimate(BatchState.OPEN, replace(PLACE, gates=gates)).eta_seconds == seconds


def test_the_eta_is_not_before_a_delayed_chunk_is_due() -> None:
    assert estimate(BatchState.OPEN, replace(PLACE, pause=240.0)).eta_seconds == 240.0


@pytest.mark.parametrize(
    ("change", "confidence"),
    [
        ({"spread": 0.19}, Confidence.HIGH),
        ({"spread": 0.21}, Confidence.MEDIUM),
        ({"spread": 0.6}, Confidence.LOW),
        ({"spread": None}, Confidence.LOW),
        (
            {"spread": 0.19, "own_tokens": 0.0, "ahead_tokens": 50.0},
            Confidence.MEDIUM,
        ),  # five seconds, less than a stretch
        ({"spread": 0.05, "own_tokens": 0.0, "ahead_tokens": 20.0}, Confidence.MEDIUM),  # the least, three seconds
        ({"gates": (CLOSED_GATE,)}, Confidence.LOW),
        ({"gates": ()}, Confidence.NONE),
        ({"pace": None, "spread": None}, Confidence.NONE),
        ({"pace": 0.0}, Confidence.NONE),
    ],
)
def test_confidence_falls_with_the_spread_and_without_an_open_gate(
    change: dict[str, object], confidence: Confidence
) -> None:
    found = estimate(BatchState.OPEN, replace(PLACE, **change))  # type: ignore[arg-type]
    assert found.confidence is confidence
    assert (found.eta_seconds is None) == (confidence is Confidence.NONE)


def test_a_paused_batch_has_no_eta() -> None:
    assert estimate(BatchState.PAUSED, PLACE).eta_seconds is None


async def test_position_share_and_pace_come_from_the_queue_itself(database: Database) -> None:
    async with database.durable() as conn:
        mine, other = await support.make_tenant(conn, "mine", 1), await support.make_tenant(conn, "other", 3)
        pool = await support.make_pool(conn)
    await support.submit(database, mine, pool, 32, tokens=100)
    batch = await support.submit(database, mine, pool, 32, tokens=100)
    await support.submit(database, other, pool, 32, tokens=100)
    async with database.durable() as conn:
        worker = await support.make_engine(conn, database, pool)
        await conn.execute("insert into pace values (%s, now() - interval '5 s', 0)", (pool,))
        for _ in range(2):
            lease = await support.claim(conn, pool, worker)
            assert lease is not None
            await support.run_chunk(database, lease)
        await pace_log.note(conn)
    found = await estimated(database, mine, batch.request_id)
    assert found is not None
    # Virtual times are equal at first, so each tenant has had one chunk of 1,600 tokens; the other one has one left.
    assert (found.position, found.share) == (1, 0.25)
    assert found.tokens_per_second == pytest.approx(3200 / 5 * 0.25, rel=0.05)
    assert found.eta_seconds == pytest.approx((1600 + 3200 + 1600) / (3200 / 5), rel=0.05)
    async with database.durable() as conn:
        await conn.execute("update engine set intake = 'returning'")
    found = await estimated(database, mine, batch.request_id)
    assert found is not None
    assert found.eta_seconds is None


async def test_finished_items_count_before_their_chunk_is_done(database: Database) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
        first = await support.submit(database, tenant, pool, 32, tokens=100)
        later = await support.submit(database, tenant, pool, 16, tokens=100)
        worker = await support.make_engine(conn, database, pool)
        await conn.execute("insert into pace values (%s, now() - interval '5 s', 0)", (pool,))
        lease = await support.claim(conn, pool, worker)
        assert lease is not None
        items = await service.load(conn, lease)
        assert await service.flush(conn, lease, support.answers(items[:8]))
        await pace_log.note(conn)
        assert await (await conn.execute("select max(served_tokens) from pace")).fetchone() == (800,)
        outlooks = [(await sight(database, tenant, batch.request_id))[1] for batch in (first, later)]
        assert [(each.own_tokens, each.ahead_tokens) for each in outlooks if each] == [(2400, 0), (1600, 2400)]
        await service.flush(conn, lease, support.answers(items[8:]))
        await service.finish(conn, lease)
        await pace_log.note(conn)
        assert await (await conn.execute("select max(served_tokens) from pace")).fetchone() == (1600,)


async def test_a_pace_of_zero_says_for_how_long_no_item_has_ended(database: Database) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
        batch = await support.submit(database, tenant, pool, 4)
        await support.make_engine(conn, database, pool)
        for ago, served in ((400, 50), (305, 80), (300, 80)):
            note = "insert into pace values (%s, now() - make_interval(secs => %s), %s, 0)"
            await conn.execute(note, (pool, ago, served))
    found = await estimated(database, tenant, batch.request_id)
    assert found is not None
    assert (found.missing, found.still) == (Missing.STILL, pytest.approx(305, abs=20))
    prospect = await reads.prospect(database, tenant, "toy")
    assert (prospect.missing, prospect.still) == (Missing.STILL, pytest.approx(305, abs=20))


async def test_without_a_ready_engine_no_pace_is_noted(database: Database) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
        await support.submit(database, tenant, pool, 4)
        await pace_log.note(conn)
        assert await (await conn.execute("select count(*) from pace")).fetchone() == (0,)
        await support.make_engine(conn, database, pool)
        await pace_log.note(conn)
        assert await (await conn.execute("select count(*) from pace")).fetchone() == (1,)


async def test_a_final_batch_has_no_estimate_and_an_idle_pool_no_pace(database: Database) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    batch = await support.submit(database, tenant, pool, 4)
    found = await estimated(database, tenant, batch.request_id)
    assert found is not None
    assert (found.confidence, found.eta_seconds) == (Confidence.NONE, None)
    await support.drain(database, pool, await support.make_worker(database, pool))
    await support.settle(database)
    async with database.durable() as conn:
        await pace_log.note(conn)
        assert await (await conn.execute("select count(*) from pace")).fetchone() == (0,)
    assert await estimated(database, tenant, batch.request_id) is None


async def test_snapshots_returns_many_batches_each_only_to_its_own_tenant(database: Database) -> None:
    async with database.durable() as conn:
        mine, other = await support.make_tenant(conn, "mine"), await support.make_tenant(conn, "other")
        pools = [await support.make_pool(conn, "one"), await support.make_pool(conn, "two")]
    batches = [await support.submit(database, mine, pool, 32, tokens=100) for pool in (*pools, pools[0])]
    theirs = await support.submit(database, other, pools[0], 16, tokens=100)
    asked = [(mine, batch.request_id) for batch in batches]
    strangers = [(other, batches[0].request_id), (mine, theirs.request_id), (mine, uuid.uuid4())]
    found = await reads.snapshots(database, [*asked, *strangers, (other, theirs.request_id), asked[0]])
    assert found[3:6] == [None, None, None]
    outlooks = [sight[1] for sight in (*found[:3], *found[6:]) if sight and sight[1]]
    assert [(each.ready, each.ahead_chunks, each.ahead_tokens) for each in outlooks] == [
        (2, 0, 0), (2, 0, 0), (2, 2, 3200), (1, 0, 0), (2, 0, 0),
    ]  # fmt: skip
    assert [each.accounts for each in outlooks] == [2, 1, 2, 2, 2]
    assert [each.others for each in outlooks] == [
        ((1, 1600),), (), ((1, 1600),), ((1, 6400),), ((1, 1600),),
    ]  # fmt: skip


async def sight(database: Database, tenant: int, request_id: uuid.UUID) -> reads.BatchSnapshot:
    [found] = await reads.snapshots(database, [(tenant, request_id)])
    assert found is not None
    return found


async def estimated(database: Database, tenant: int, request_id: uuid.UUID) -> Estimate | None:
    status, outlook = await sight(database, tenant, request_id)
    return outlook and estimate(status.state, outlook)
