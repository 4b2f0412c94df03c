"""Claims about workers without work: what they ask the database, and how they hear that work has come."""

from dataclasses import replace
from typing import Any

import pytest

from app.crypto import bearer_token, secret_key
from app.db.pool import Connection
from app.gateway.announcer import Announcer
from app.headroom.arrivals import ANNOUNCING
from app.queue import heartbeat, pool_status
from app.queue import service as queue
from app.queue.heartbeat import HeartbeatAnswer
from testing.waiting import eventually
from tests.gpu.world import World
from workers.gpu.claim_backoff import FEW_WORKERS


class Asked:
    """Counts what workers of this process ask the queue."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.claims = self.heartbeats = 0
        claim, send = queue.claim, heartbeat.send

        async def counted(conn: Connection, pool_id: int, worker_id: int, **how: Any) -> Any:
            self.claims += 1
            return await claim(conn, pool_id, worker_id, **how)

        async def beaten(*given: Any, **how: Any) -> dict[int, HeartbeatAnswer]:
            answers = await send(*given, **how)
            self.heartbeats += 1
            return answers

        monkeypatch.setattr(queue, "claim", counted)
        monkeypatch.setattr(heartbeat, "send", beaten)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


async def crowd(world: World) -> None:
    """As if many workers were there."""
    await world.fetch(
        """insert into worker (pool_id, host, pid, lease_until)
           select pool_id, 'h', 1, now() + interval '1 hour' from pool, generate_series(1, %s) returning 1""",
        FEW_WORKERS,
    )


async def idle(world: World, asked: Asked) -> None:
    """Wait until the worker waits for work, and knows how many there are."""
    await world.until("exists (select from worker where hungry)")
    known = asked.heartbeats + 1
    await eventually(lambda: asked.heartbeats > known)


async def test_an_idle_worker_of_a_large_fleet_claims_nothing_until_its_heartbeat_says_that_work_waits(
    world: World, asked: Asked
) -> None:
    await crowd(world)
    async with world.worker(heartbeat_seconds=0.1):
        await idle(world, asked)
        claims, until_beats = asked.claims, asked.heartbeats + 5
        await eventually(lambda: asked.heartbeats > until_beats)
        assert asked.claims == claims
        batch = await world.submit(["hello"])
        await world.finished(batch)


async def test_an_idle_worker_of_a_large_fleet_that_is_woken_claims_before_its_next_heartbeat(
    world: World, asked: Asked
) -> None:
    await crowd(world)
    token = bearer_token(secret_key(world.settings), ANNOUNCING)
    async with world.worker(heartbeat_seconds=3, lease_seconds=60) as running, Announcer(token, rest_seconds=5) as api:
        await world.until("exists (select from worker where hungry)")
        beats = asked.heartbeats + 1
        await eventually(lambda: asked.heartbeats == beats)  # the next one is far away
        batch = await world.submit(["hello"])
        [(url,)] = await world.fetch("select arrival_url from engine")
        api.wake(url)
        await eventually(lambda: world.engine.count.total() == 1)
        assert asked.heartbeats == beats
        await world.finished(batch)
        assert not running.task.done()


async def test_in_a_small_fleet_work_that_nobody_announces_is_found_at_once(world: World, asked: Asked) -> None:
    async with world.worker(heartbeat_seconds=3600, lease_seconds=7200):
        await eventually(lambda: asked.claims > 5)
        await world.submit(["hello"])
        await eventually(lambda: world.engine.count.total() == 1)


async def test_a_worker_whose_steward_has_stopped_claims_all_that_waits_and_no_more_at_once_than_it_needs(
    world: World, asked: Asked
) -> None:
    """What the steward saw last would let it starve: there was no work, and the fleet was small."""
    await crowd(world)
    async with world.database.durable() as conn:
        await pool_status.write(conn)
        await conn.execute("update pool_status set at = now() - interval '61 seconds', scarce = true, workers = 1")
    world.engine.latency = 0.2
    async with world.worker(heartbeat_seconds=0.1, batch_max_in_flight=2):
        await idle(world, asked)
        claims, until_beats = asked.claims, asked.heartbeats + 5
        await eventually(lambda: asked.heartbeats > until_beats)
        assert asked.claims == claims
        batch = await world.submit([f"question {n}." for n in range(16)], chunk=2)
        await eventually(lambda: world.engine.running == 2)
        beats = asked.heartbeats + 2
        await eventually(lambda: asked.heartbeats > beats)
        [(leased,)] = await world.fetch("select count(*) from chunk where state = 'leased'")
        assert leased <= 3
        await world.finished(batch)
    assert world.engine.count.total() == 16


async def test_where_work_is_scarce_a_worker_gives_back_what_it_would_not_start_soon(world: World) -> None:
    world.engine.latency = 0.3
    batch = await world.submit([f"question {n}." for n in range(16)], chunk=16)
    async with world.worker(heartbeat_seconds=0.1, batch_max_in_flight=2):
        await eventually(lambda: world.engine.running == 2)
        async with world.database.durable() as conn:
            await pool_status.write(conn)
            await conn.execute("update pool_status set scarce = true")
        await world.until("exists (select from chunk where n < 16)")
        await world.finished(batch)
    assert len(await world.results(batch)) == 16
    assert world.engine.count.total() == 16


async def test_a_worker_that_left_scarce_work_to_others_claims_again_once_it_has_none_itself(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = heartbeat.send

    async def scarce(*given: Any, **how: Any) -> dict[int, HeartbeatAnswer]:
        return {worker: replace(answer, scarce=True) for worker, answer in (await send(*given, **how)).items()}

    monkeypatch.setattr(heartbeat, "send", scarce)
    world.engine.latency = 0.5
    async with world.worker(heartbeat_seconds=3600, lease_seconds=7200) as running:
        first = await world.submit(["hello"])
        await eventually(lambda: world.engine.running == 1)
        running.worker._puller.on_heartbeat(HeartbeatAnswer(held=[], scarce=True))
        second = await world.submit(["hello again"])
        await world.finished(first)
        await world.finished(second)
