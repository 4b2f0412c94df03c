"""Cancelled and paused batches, and batches whose time is over, while their items are in an engine."""

import pytest

from app.batches import lifecycle
from app.queue.heartbeat import HeartbeatAnswer
from app.states import BatchState
from app.tenants.service import Tenant
from testing.waiting import eventually
from tests.clock import Clock
from tests.gpu.world import World
from tests.queue import support
from workers.gpu.puller import Puller


async def halt(world: World, batch: int, verb: lifecycle.Verb) -> None:
    [(request_id,)] = await world.fetch("select request_id from batch where batch_id = %s", batch)
    await lifecycle.change_state(world.database, Tenant(world.tenant, "acme"), request_id, verb)


async def running(world: World, requests: int) -> None:
    await eventually(lambda: world.engine.running >= requests)


@pytest.fixture
def running_on(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many items are not aborted after each heartbeat whose answer says that their batch has ended."""
    obey, found = Puller.on_heartbeat, list[int]()

    def watched(puller: Puller, answer: HeartbeatAnswer) -> None:
        obey(puller, answer)
        ended = {lease.chunk_id for lease in answer.held if lease.batch in (BatchState.CANCELLING, BatchState.EXPIRING)}
        if ended:
            chunks = [chunk for chunk_id, chunk in puller._chunks.items() if chunk_id in ended]
            found.append(sum(not task.cancelling() for chunk in chunks for task in chunk.running.values()))

    monkeypatch.setattr(Puller, "on_heartbeat", watched)
    return found


async def test_cancel_aborts_what_is_in_the_engine_within_a_heartbeat(world: World, running_on: list[int]) -> None:
    world.engine.script({"mode": "hang"})
    batch = await world.submit([f"question {n}." for n in range(64)], chunk=16)
    async with world.worker(heartbeat_seconds=0.3):
        await running(world, 16)
        await halt(world, batch, "cancel")
        [(beats,)] = await world.fetch("select count(*) from worker where lease_until > now()")
        assert beats == 1
        assert await eventually(lambda: running_on[:1]) == [0]
        await world.finished(batch)
        assert (world.engine.running, world.engine.aborted) == (0, 16)
    assert await world.fetch("select state, ok, failed from batch") == [("cancelled", 0, 0)]
    assert await world.fetch(support.CACHES) == [(0, 0)]
    assert world.engine.finished.total() == 0


async def test_cancel_of_one_batch_leaves_another_alone(world: World) -> None:
    world.engine.script({"match": "hangs", "mode": "hang"}, {"match": "slow", "mode": "slow", "seconds": 1.5})
    cancelled = await world.submit([f"hangs {n}." for n in range(4)])
    kept = await world.submit([f"slow too {n}." for n in range(4)])
    async with world.worker(heartbeat_seconds=0.2):
        await running(world, 8)
        await halt(world, cancelled, "cancel")
        await world.finished(cancelled)
        await world.finished(kept)
    assert world.engine.aborted == 4
    assert await world.fetch("select state, ok from batch order by batch_id") == [("cancelled", 0), ("completed", 4)]


async def test_pause_lets_what_runs_end_starts_nothing_more_and_resume_goes_on(world: World, clock: Clock) -> None:
    world.engine.script({"mode": "slow", "seconds": 1})
    prompts = [f"question {n}." for n in range(16)]
    batch = await world.submit(prompts, chunk=16)
    async with world.worker(heartbeat_seconds=0.1, lease_seconds=60, batch_max_in_flight=4):
        await running(world, 4)
        await halt(world, batch, "pause")
        await world.until("not exists (select from chunk where state <> 'held')")
        begun = world.engine.count.total()
        assert 4 <= begun <= 8
        assert world.engine.aborted == 0
        await clock.sleep(2)
        assert world.engine.count.total() == begun
        world.engine.script()
        await halt(world, batch, "resume")
        await world.finished(batch)
    assert world.engine.count == dict.fromkeys(prompts, 1)


async def test_when_its_time_is_over_a_batch_leaves_the_engine(world: World, running_on: list[int]) -> None:
    world.engine.script({"match": "question 3.", "mode": "hang"})
    batch = await world.submit([f"question {n}." for n in range(8)])
    async with world.worker(heartbeat_seconds=0.1):
        await world.until("count(*) = 7 from item_result")
        await world.fetch("update batch set expires_at = now() returning 1")
        assert await eventually(lambda: running_on[:1]) == [0]
        await world.finished(batch)
        assert world.engine.aborted == 1
    assert await world.fetch("select state, ok, failed, total from batch") == [("expired", 7, 0, 8)]
