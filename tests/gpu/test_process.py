"""The worker as its own process: signals, kill -9, and a restart in the middle of a batch."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from testing.fakes.engine import FakeEngine
from testing.waiting import LIMIT_SECONDS, eventually
from tests.gpu.world import World, process
from tests.timing import note


async def test_sigterm_drains_and_exits_with_0(world: World) -> None:
    world.engine.latency = 0.2
    batch = await world.submit([f"question {i}." for i in range(100)])
    async with process(world) as child:
        await world.until("count(*) > 0 from item_result")
        child.send_signal(signal.SIGTERM)
        _, log = await child.communicate()
        assert child.returncode == 0
        assert b"worker.stopped" in log
        assert b"never retrieved" not in log
    stored = await world.results(batch)
    assert len(stored) == world.engine.finished.total() == world.engine.count.total()
    assert await world.fetch("select count(*) from worker") == [(0,)]


async def test_a_second_signal_hands_back_at_once_what_the_first_lets_end(world: World) -> None:
    """The drain time is longer than this test may take, and no telemetry takes the hanging requests back."""
    world.engine.script({"match": "hangs", "mode": "hang"})
    batch = await world.submit([*(f"question {i}." for i in range(20)), *(f"hangs {i}" for i in range(6))], chunk=26)
    async with process(world, DRAIN_SECONDS="600", HEADROOM="static") as child:
        await eventually(lambda: world.engine.running == 6 and world.engine.finished.total() == 20)
        computing = asyncio.create_task(compute(world.engine))
        child.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.2)
        assert world.engine.aborted == 0  # the first signal waits
        child.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(child.wait(), LIMIT_SECONDS) == 0
        computing.cancel()
    assert world.engine.aborted == 6
    await handed_back(world, batch, left=6)


@pytest.mark.slow
async def test_a_notice_file_hands_all_back_and_the_worker_waits_for_its_end(world: World, tmp_path: Path) -> None:
    notice = tmp_path / "notice"
    world.engine.script({"match": "hangs", "mode": "hang"})
    batch = await world.submit([*(f"question {i}." for i in range(20)), *(f"hangs {i}" for i in range(6))], chunk=26)
    async with process(
        world, LEASE_SECONDS="60", DRAIN_SECONDS="600", HEADROOM="static", NOTICE_FILE=str(notice)
    ) as child:
        await eventually(lambda: world.engine.running == 6 and world.engine.finished.total() == 20)
        notice.write_text("the machine goes in two minutes")
        await world.until("not exists (select from worker)")
        await handed_back(world, batch, left=6)
        assert child.returncode is None
        child.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(child.wait(), LIMIT_SECONDS) == 0


async def compute(engine: FakeEngine) -> None:
    """Let its counters move, so that its requests are not taken back as those of an engine that stands still."""
    while True:
        engine.generation_tokens += 1
        await asyncio.sleep(0.05)


async def handed_back(world: World, batch: int, *, left: int) -> None:
    """What was done is stored, the rest is in the queue and nobody is charged for it, and the engine is free."""
    assert len(await world.results(batch)) == 20
    assert await world.fetch(
        "select sum(n)::int, max(attempt), max(deaths), count(*) filter (where state = 'leased') from chunk"
    ) == [(left, 0, 0, 0)]
    assert await world.fetch("select count(*) from worker") == [(0,)]
    assert await world.fetch("select worker_id, state, reason from engine") == [(None, "down", "released")]


async def test_after_kill_9_the_next_worker_finishes_the_batch_and_repeats_nothing_stored(world: World) -> None:
    world.engine.latency = 0.05
    batch = await world.submit([f"question {i}." for i in range(300)])
    async with process(world) as child:
        await world.until("count(*) > 60 from item_result")
        child.kill()
        await child.wait()
        await world.lapse()
        stored = await world.results(batch)
        seen = world.engine.count.copy()
    async with process(world) as child:
        await world.finished(batch)
        child.send_signal(signal.SIGTERM)
        assert await child.wait() == 0
    results = await world.results(batch)
    again = {seq for seq in stored if world.engine.count[f"question {seq}."] > seen[f"question {seq}."]}
    counts = f"stored at the kill {len(stored)}, run again of those {len(again)}, lost {300 - len(results)}"
    note(f"kill -9 of a gpu worker with 300 items: {counts}")
    assert (len(results), again) == (300, set())
    assert all(ok for ok, _, _ in results.values())


@pytest.mark.slow
async def test_a_model_that_is_not_in_the_catalogue_is_said_and_exits_with_1(world: World) -> None:
    database_url = world.settings.database_url
    environment = {**os.environ, "SLACKWATER_ENGINE_MODEL": "nonsense", "SLACKWATER_DATABASE_URL": database_url}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "workers.gpu", env=environment, stderr=asyncio.subprocess.PIPE
    )
    _, log = await child.communicate()
    assert child.returncode == 1
    assert b"nonsense" in log
    assert b"Traceback" not in log
