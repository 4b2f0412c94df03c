"""Items that kill the engine: they get their error, their neighbours their answers, and the deaths are few."""

import asyncio
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import aiohttp
import pytest

from app.engines import catalogue
from app.queue.types import Item
from app.settings import Settings
from testing.waiting import eventually
from tests.gpu.test_puller import ITEMS, LEASE
from tests.gpu.world import MODEL, World
from tests.queue import support
from tests.timing import note
from workers.engine.step_budget import UNLIMITED_TOKENS
from workers.gpu.admission import Admission
from workers.gpu.item_runner import ItemRunner
from workers.gpu.managed_engine import ManagedEngine
from workers.gpu.open_chunk import OpenChunk, OpenChunks
from workers.gpu.tuning import WorkerTuning

QUICK = WorkerTuning(
    restart_seconds=(0.05, 0.2), engine_poll_seconds=0.05, health_seconds=0.05, engine_death_seconds=0.05
)


class Mortal(ManagedEngine):
    """A fake engine as our child, which ends when it meets one of the killers. `lives` counts its starts."""

    def __init__(self, settings: Settings, killers: list[str]) -> None:
        model = catalogue.load(settings.models_file).resolve(MODEL)
        assert model is not None
        weights = Path(model.path(settings.data_dir))
        weights.mkdir(parents=True)
        (weights / "config.json").write_text("{}")
        super().__init__(settings, model, tuning=QUICK)
        script = json.dumps([{"match": killer, "mode": "exit"} for killer in killers])
        fake = [sys.executable, "-m", "testing.fakes.engine", "--latency", "0.03"]
        self._command = [*fake, "--port", str(self.port), "--script", script]
        self.lives = 0

    async def _start(self) -> asyncio.subprocess.Process:
        self.lives += 1
        return await super()._start()


async def _caches(world: World) -> list[tuple[int, int]]:
    return await world.fetch(support.CACHES)


async def test_an_item_that_kills_the_engine_is_given_up_and_its_neighbours_succeed(world: World) -> None:
    prompts = [f"question {n}." for n in range(41)]
    batch = await world.submit(prompts)
    engine = Mortal(world.settings, ["question 7."])
    async with world.worker(engine, QUICK, lease_seconds=10):
        await world.finished(batch)
    results = await world.results(batch)
    note(f"one item of 41 kills the engine each time: {engine.lives - 1} deaths, {len(results)} results")
    ok, _, error = results.pop(7)
    assert (ok, error["code"]) == (0, 5001)
    assert error["message"].startswith("the engine died 2 times while this item was running")
    assert len(results) == 40
    assert all(ok for ok, _, _ in results.values())
    assert engine.lives - 1 <= 2
    assert await _caches(world) == [(0, 0)]


@pytest.mark.slow
async def test_two_killers_side_by_side_end_too(world: World) -> None:
    batch = await world.submit([f"question {n}." for n in range(12)], chunk=6)
    engine = Mortal(world.settings, ["question 2.", "question 3."])
    async with world.worker(engine, QUICK, lease_seconds=10):
        await world.finished(batch)
    results = await world.results(batch)
    assert [seq for seq in range(12) if not results[seq][0]] == [2, 3]
    assert engine.lives - 1 <= 4
    assert await _caches(world) == [(0, 0)]


async def test_an_item_whose_connection_is_always_lost_costs_its_own_attempts_only(world: World) -> None:
    world.engine.script({"match": "question 7.", "mode": "die"})
    batch = await world.submit([f"question {n}." for n in range(41)])
    async with world.worker(tuning=QUICK, request_attempts=2, item_retries=0):
        await world.finished(batch)
    results = await world.results(batch)
    assert [seq for seq in range(41) if not results[seq][0]] == [7]
    assert world.engine.count["question 7."] == 2


async def test_a_suspect_runs_with_nothing_beside_it(world: World) -> None:
    batch = await world.submit([f"question {n}." for n in range(12)], chunk=1)
    world.engine.latency = 0.05
    await world.fetch("update chunk set attempt = 2 returning 1")
    async with world.worker(tuning=QUICK):
        await world.finished(batch)
    assert world.engine.peak == 1
    assert world.engine.count.total() == 12


def test_nothing_starts_beside_a_suspect_and_no_suspect_beside_others() -> None:
    chunks, started = OpenChunks(), list[int]()

    def start(chunk: OpenChunk, item: Item) -> None:
        chunk.running[item.seq] = cast("asyncio.Task[None]", None)
        started.append(chunk.lease.chunk_id)

    def end(chunk_id: int) -> None:
        chunks.pop(chunk_id).running.clear()
        admission.admit(start)

    admission = Admission(chunks, cast(ItemRunner, None), QUICK)
    admission.limit(8, prefill_tokens=UNLIMITED_TOKENS, sync_idle=True)
    innocent, suspect = replace(LEASE, attempt=0), replace(LEASE, attempt=0, deaths=1)
    for chunk_id, lease in enumerate((suspect, innocent, suspect), 1):
        chunks[chunk_id] = OpenChunk.of(replace(lease, chunk_id=chunk_id), ITEMS[:1], 4)
    admission.admit(start)
    assert started == [2]
    end(2)
    assert started == [2, 1]
    chunks[4] = OpenChunk.of(replace(innocent, chunk_id=4), ITEMS, 4)
    admission.admit(start)
    assert started == [2, 1]
    end(1)
    assert started == [2, 1, 4, 4]
    end(4)
    assert started == [2, 1, 4, 4, 3]


async def test_a_suspect_waits_until_no_caller_is_in_the_engine(world: World) -> None:
    world.engine.script({"match": "a caller", "mode": "hang"})
    batch = await world.submit(["question 0."], chunk=1)
    await world.fetch("update chunk set attempt = 2 returning 1")
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "a caller"}], "stream": True}
    async with aiohttp.ClientSession() as session:
        caller = await session.post(world.engine.url + "/v1/chat/completions", json=asked)
        async with world.worker(tuning=replace(QUICK, suspect_wait_seconds=math.inf)) as running:
            admission = running.worker._puller._admission
            await eventually(
                lambda: (
                    (admission._suspect_since is not None and admission.allowance > 0)
                    or world.engine.count["question 0."]
                )
            )
            looks = running.worker._control.sampler.latest
            await eventually(lambda: running.worker._control.sampler.latest is not looks)
            assert world.engine.count["question 0."] == 0
            caller.close()
            await world.finished(batch)
    assert world.engine.count["question 0."] == 1


async def test_what_is_given_up_is_not_sent_again(world: World) -> None:
    batch = await world.submit(["question 0.", "question 1."], chunk=1)
    await world.fetch("update chunk set attempt = 4 where lo = 1 returning 1")
    async with world.worker(tuning=QUICK):
        await world.finished(batch)
    assert world.engine.count == {"question 0.": 1}
    [totals] = await world.fetch("select state, ok, failed from batch")
    assert totals == ("completed", 1, 1)
