"""What a batch can tell of its end."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from app.db.pool import Database
from app.engines import service as engines
from app.queue import care, reading, service
from app.queue.estimate import Confidence, Estimate, Gate, Outlook, estimate
from app.states import BatchState, EngineState
from tests.queue import support

NOW = datetime(2026, 11, 21, tzinfo=UTC)
OPEN_GATE = Gate(1, "e", EngineState.READY, 8, "open", None, None, None, NOW, NOW, alive=True)
CLOSED_GATE = replace(OPEN_GATE, allowance=0, reason="closed_sync_waiting")
PLACE = Outlook(
    (OPEN_GATE,), NOW, ready=3, leased=0, delayed=0, held=0, pause=None, own_tokens=600.0, ahead_chunks=3, ahead_tokens=400.0,
    share=0.5, pace=20.0, intervals=12, accounts=2, pool_inflight=0, inflight=0, limit=1000,
)  # fmt: skip


def test_the_eta_is_the_line_and_the_batch_at_the_tenants_share_of_the_pace() -> None:
    found = estimate(BatchState.OPEN, PLACE)
    assert (found.position, found.eta_seconds, found.tokens_per_second) == (3, 100.0, 10.0)
    assert found.confidence is Confidence.HIGH


@pytest.mark.parametrize(
    ("change", "confidence"),
    [
        ({"intervals": 5}, Confidence.MEDIUM),
        ({"intervals": 1}, Confidence.LOW),
        ({"gates": (CLOSED_GATE,)}, Confidence.LOW),
        ({"gates": ()}, Confidence.LOW),
        ({"pace": None, "intervals": 0}, Confidence.NONE),
        ({"pace": 0.0}, Confidence.NONE),
    ],
)
def test_confidence_says_what_the_eta_is_worth(change: dict[str, object], confidence: Confidence) -> None:
    found = estimate(BatchState.OPEN, replace(PLACE, **change))  # type: ignore[arg-type]
    assert found.confidence is confidence
    assert (found.eta_seconds is None) == (confidence is Confidence.NONE)


def test_a_paused_batch_has_no_eta() -> None:
    assert estimate(BatchState.PAUSED, PLACE).eta_seconds is None


async def test_place_share_and_pace_come_from_the_queue_itself(database: Database) -> None:
    async with database.durable() as conn:
        mine, other = await support.make_tenant(conn, "mine", 1), await support.make_tenant(conn, "other", 3)
        pool = await support.make_pool(conn)
    await support.submit(database, mine, pool, 32, tokens=100)
    batch = await support.submit(database, mine, pool, 32, tokens=100)
    await support.submit(database, other, pool, 32, tokens=100)
    worker = await support.make_worker(database, pool)
    async with database.durable() as conn:
        await engines.take_engine(conn, pool_id=pool, worker_id=worker, name="e", url="http://e", mode="attached")
        for _ in range(2):
            lease = await service.claim(conn, pool, worker)
            assert lease is not None
            await support.run_chunk(database, lease)
        await care.note_pace(conn)
        # ten seconds ago nothing had been served
        await conn.execute("insert into pace select pool_id, at - interval '10 s', 0 from pace")
    found = await estimated(database, mine, batch.request_id)
    assert found is not None
    # Virtual times are equal at first, so each tenant has had one chunk of 1,600 tokens.
    assert (found.position, found.share) == (1, 0.25)
    assert found.tokens_per_second == pytest.approx(3200 / 10 * 0.25)
    assert found.eta_seconds == pytest.approx((1600 + 3200) / (3200 / 10 * 0.25))


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
        await care.note_pace(conn)
        assert await (await conn.execute("select count(*) from pace")).fetchone() == (0,)
    assert await estimated(database, tenant, batch.request_id) is None


async def test_one_look_tells_of_many_batches_each_to_its_own_tenant(database: Database) -> None:
    async with database.durable() as conn:
        mine, other = await support.make_tenant(conn, "mine"), await support.make_tenant(conn, "other")
        pools = [await support.make_pool(conn, "one"), await support.make_pool(conn, "two")]
    batches = [await support.submit(database, mine, pool, 32, tokens=100) for pool in (*pools, pools[0])]
    theirs = await support.submit(database, other, pools[0], 16, tokens=100)
    asked = [(mine, batch.request_id) for batch in batches]
    strangers = [(other, batches[0].request_id), (mine, theirs.request_id), (mine, uuid.uuid4())]
    found = await reading.sights(database, [*asked, *strangers, (other, theirs.request_id), asked[0]])
    assert found[3:6] == [None, None, None]
    outlooks = [sight[1] for sight in (*found[:3], *found[6:]) if sight and sight[1]]
    assert [(each.ready, each.ahead_chunks, each.ahead_tokens) for each in outlooks] == [
        (2, 0, 0), (2, 0, 0), (2, 2, 3200), (1, 0, 0), (2, 0, 0),
    ]  # fmt: skip
    assert [each.accounts for each in outlooks] == [2, 1, 2, 2, 2]


async def estimated(database: Database, tenant: int, request_id: uuid.UUID) -> Estimate | None:
    [sight] = await reading.sights(database, [(tenant, request_id)])
    assert sight is not None
    status, outlook = sight
    return outlook and estimate(status.state, outlook)
