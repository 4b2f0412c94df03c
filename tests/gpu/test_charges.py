"""Claims about a worker that was counted as lost: its chunks are charged for it only if it does not return."""

import asyncio
import signal

import pytest

from testing.waiting import eventually
from tests.gpu.world import World, process
from workers.gpu import membership

HELD = "from chunk where state = 'leased'"


async def test_a_worker_that_was_stopped_for_longer_than_its_lease_takes_its_charge_back(world: World) -> None:
    world.engine.script({"mode": "hang"})
    await world.submit([f"question {n}" for n in range(8)])
    async with process(world, LEASE_SECONDS="1") as child:
        await world.until(f"exists (select {HELD})")
        child.send_signal(signal.SIGSTOP)
        await world.until("max(attempt) = 1 from chunk")
        child.send_signal(signal.SIGCONT)
        await world.until("max(attempt) = 0 from chunk")
        assert await world.fetch("select excused, charged_for from chunk") == [(1, None)]


async def test_what_a_heartbeat_says_of_batches_comes_before_charges(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.engine.script({"mode": "hang"})
    await world.submit([f"question {n}" for n in range(8)])
    go_on = asyncio.Event()

    async def take_back(conn: object, worker_id: int) -> int:
        await go_on.wait()
        return 0

    monkeypatch.setattr(membership.charges, "take_back", take_back)
    async with world.worker() as running:
        await eventually(lambda: world.engine.count.total() == 8)
        running.worker._membership._former_ids.add(7)
        await world.fetch("update batch set state = 'cancelling' returning 1")
        await eventually(lambda: world.engine.aborted == 8)
        go_on.set()
        await eventually(lambda: not running.worker._membership._former_ids)


@pytest.mark.slow
async def test_the_charge_of_a_worker_that_was_killed_stays_though_its_name_returns(world: World) -> None:
    world.engine.script({"mode": "hang"})
    await world.submit([f"question {n}" for n in range(8)])
    async with process(world) as child:
        await world.until(f"exists (select {HELD})")
        child.kill()
        await child.wait()
        await world.lapse()
        await world.until("max(attempt) = 1 from chunk")
    async with process(world):
        await world.until(f"exists (select {HELD})")
        [(joined,)] = await world.fetch("select renewed_at from worker")
        for _ in range(3):  # heartbeats
            await world.until(f"max(renewed_at) > '{joined}' from worker")
            [(joined,)] = await world.fetch("select renewed_at from worker")
        assert await world.fetch("select attempt, excused from chunk") == [(1, None)]
