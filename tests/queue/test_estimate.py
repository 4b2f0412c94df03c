"""What a batch can tell of its end, and of what it waits for."""

import uuid
from dataclasses import replace

import pytest

from app.db.pool import Database
from app.engines import service as engines
from app.queue import care, reading, service
from app.queue.estimate import Confidence, EngineView, Outlook, estimate
from app.states import BatchState, EngineState
from tests.queue import support

OPEN_ENGINE = EngineView(EngineState.READY, "open", 8, alive=True)
CLOSED_ENGINE = EngineView(EngineState.READY, "closed_sync_waiting", 0, alive=True)
PLACE = Outlook(BatchState.OPEN, (OPEN_ENGINE,), 600.0, 0, 0, 3, 400.0, 0.5, 20.0, 12)


def test_the_eta_is_the_line_and_the_batch_at_the_tenants_share_of_the_pace() -> None:
    found = estimate(PLACE)
    assert (found.position, found.eta_seconds, found.tokens_per_second) == (3, 100.0, 10.0)
    assert found.confidence is Confidence.HIGH


@pytest.mark.parametrize(
    ("change", "confidence"),
    [
        ({"intervals": 5}, Confidence.MEDIUM),
        ({"intervals": 1}, Confidence.LOW),
        ({"engines": (CLOSED_ENGINE,)}, Confidence.LOW),
        ({"pace": None, "intervals": 0}, Confidence.NONE),
        ({"pace": 0.0}, Confidence.NONE),
        ({"state": BatchState.PAUSED}, Confidence.NONE),
    ],
)
def test_confidence_says_what_the_eta_is_worth(change: dict[str, object], confidence: Confidence) -> None:
    found = estimate(replace(PLACE, **change))  # type: ignore[arg-type]
    assert found.confidence is confidence
    assert (found.eta_seconds is None) == (confidence is Confidence.NONE)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": BatchState.PAUSED}, "paused"),
        ({"state": BatchState.CANCELLING}, "ending"),
        ({"engines": ()}, "no engine serves this model"),
        ({"engines": (replace(OPEN_ENGINE, alive=False),)}, "no engine serves this model"),
        ({"engines": (EngineView(EngineState.DOWN, "engine_down", 0, alive=True),)}, "not ready: engine_down"),
        ({"engines": (CLOSED_ENGINE,)}, "no room beside synchronous traffic: closed_sync_waiting"),
        ({"engines": (CLOSED_ENGINE, OPEN_ENGINE), "leased_chunks": 1}, "running"),
        ({}, "waiting for its turn"),
        ({"ahead_chunks": 0, "delayed_chunks": 1}, "rest before they are tried again"),
        ({"ahead_chunks": 0}, "next in line"),
    ],
)
def test_a_batch_says_what_it_waits_for(change: dict[str, object], words: str) -> None:
    assert words in estimate(replace(PLACE, **change)).note  # type: ignore[arg-type]


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
    status = await reading.status(database, mine, batch.request_id)
    assert status is not None
    found = await reading.estimated(database, status)
    assert found is not None
    # Virtual times are equal at first, so each tenant has had one chunk of 1,600 tokens.
    assert (found.position, found.share) == (1, 0.25)
    assert found.tokens_per_second == pytest.approx(3200 / 10 * 0.25)
    assert found.eta_seconds == pytest.approx((1600 + 3200) / (3200 / 10 * 0.25))
    assert found.note.startswith("the engine is not ready")


async def test_a_final_batch_has_no_estimate_and_an_idle_pool_no_pace(database: Database) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    batch = await support.submit(database, tenant, pool, 4)
    status = await reading.status(database, tenant, batch.request_id)
    assert status is not None
    found = await reading.estimated(database, status)
    assert found is not None
    assert (found.confidence, found.eta_seconds) == (Confidence.NONE, None)
    await support.drain(database, pool, await support.make_worker(database, pool))
    await support.settle(database)
    async with database.durable() as conn:
        await care.note_pace(conn)
        assert await (await conn.execute("select count(*) from pace")).fetchone() == (0,)
    status = await reading.status(database, tenant, batch.request_id)
    assert status is not None
    assert await reading.estimated(database, status) is None
    assert await reading.status(database, tenant, uuid.uuid4()) is None
