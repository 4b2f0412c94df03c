"""Batch requests yield to synchronous ones, keep their tokens, and go on later as if nothing had been."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import orjson

from app import clock
from app.headroom.arrivals import SENT_SECONDS
from testing.waiting import eventually
from tests.gpu.test_puller import ITEMS, LEASE
from tests.gpu.world import World
from workers.gpu.open_chunk import OpenChunk


async def results(world: World, batch: int) -> list[tuple[int, bool, Any, int, int, int]]:
    columns = "seq, ok, body, prompt_tokens, completion_tokens, yields"
    rows = await world.fetch(f"select {columns} from item_result where batch_id = %s order by seq", batch)
    return [(seq, ok, orjson.loads(bytes(body)), *rest) for seq, ok, body, *rest in rows]


async def test_yielded_requests_say_the_same_as_uninterrupted_ones_and_count_their_tokens_once(world: World) -> None:
    prompts = [f"a long question, number {n}, about the sea" for n in range(6)]
    world.engine.token_seconds, world.engine.answer_tokens = 0.03, 30
    calm = await world.submit(prompts)
    async with world.worker():
        await world.finished(calm)
    before = await results(world, calm)
    batch = await world.submit(prompts)
    async with world.worker() as running:
        worker = running.worker
        ledger = worker._runner.ledger
        await eventually(lambda: len(ledger.calls) == 6 and all(c.transcript.output_ids for c in ledger.calls.values()))
        for _ in range(2):
            worker._puller.yield_requests(4)
            await asyncio.sleep(0.1)
        await world.finished(batch)
        assert worker._puller.yields > 0
        assert worker._runner.resumes > 0
    after = await results(world, batch)
    for (seq, ok, body, prompt, completion, yields), was in zip(after, before, strict=True):
        assert ok, (seq, body)
        assert body["choices"] == was[2]["choices"]
        assert (prompt, completion) == was[3:5]
        assert yields <= 2
    assert sum(row[5] for row in after) == 8


async def test_a_request_yields_three_times_at_most_and_then_runs_to_its_end(world: World) -> None:
    world.engine.token_seconds, world.engine.answer_tokens = 0.05, 40
    batch = await world.submit(["one patient question that has a long answer"])
    async with world.worker() as running:
        worker = running.worker
        ledger = worker._runner.ledger
        for _ in range(6):
            await eventually(
                lambda: any(call.transcript.output_ids for call in ledger.calls.values()) or worker._puller.yields >= 3
            )
            worker._puller.yield_requests(1)
            await asyncio.sleep(0.12)
        await world.finished(batch)
        assert worker._puller.yields == 3
    assert (await results(world, batch))[0][5] == 3


async def test_a_burst_of_announced_prompts_makes_batch_yield_within_one_tick(world: World) -> None:
    world.engine.token_seconds, world.engine.answer_tokens = 0.2, 20
    batch = await world.submit([f"question {n} with a long answer" for n in range(8)])
    async with world.worker(control_seconds=3600, burst_tokens=1000) as running:
        worker = running.worker
        ledger, control = worker._runner.ledger, worker._control
        control.on_arrival()
        await eventually(lambda: control.sampler.latest is not None)
        await eventually(lambda: control.on_arrival() or len(ledger.calls) == 8)
        await eventually(lambda: all(call.transcript.output_ids for call in ledger.calls.values()))
        world.engine.extra_running = 2
        control.arrivals.arrived("s1", 2000, 64, clock.monotonic())
        control.on_arrival()
        await eventually(lambda: worker._puller.yields > 0)
        assert control.decision.reason == "yield_burst"
        world.engine.extra_running = 0
        control.arrivals.finished("s1", 0.0)
        world.engine.token_seconds = 0.0
        ended = "select 1 from batch where batch_id = %s and finalized_at is not null"
        await eventually(lambda: control.on_arrival() or world.fetch(ended, batch))


async def test_an_announced_caller_is_not_forgotten_because_ours_have_just_left(world: World) -> None:
    """What is in the gauges beyond ours may be the caller: only gauges without it say that it has gone."""
    world.engine.token_seconds, world.engine.answer_tokens = 0.2, 200
    await world.submit([f"question {n} with a long answer" for n in range(4)])
    async with world.worker(control_seconds=3600, sample_seconds=3600) as running:
        worker = running.worker
        ledger, control = worker._runner.ledger, worker._control
        await eventually(lambda: control.on_arrival() or len(ledger.calls) == 4)
        control.arrivals.arrived("a", 300, 64, clock.monotonic() - SENT_SECONDS - 1)
        ledger.left += 1  # one of ours has left since the last step
        world.engine.extra_running = 1
        async with aiohttp.ClientSession() as session:
            await control.sampler.scrape(session)
            scrape = control.sampler.latest
            assert scrape is not None
            assert (scrape.beyond, scrape.others, control.sync_open) == (1, 0, 1)
            world.engine.extra_running = 0
            await control.sampler.scrape(session)
        assert control.sync_open == 0


async def test_tokens_of_answers_that_a_stop_cuts_off_count_as_wasted_and_a_yield_meanwhile_delays_nothing(
    world: World,
) -> None:
    world.engine.token_seconds, world.engine.answer_tokens = 0.05, 200
    batch = await world.submit([f"a long question, number {n}" for n in range(4)])
    async with world.worker(drain_seconds=0.4, lease_seconds=30) as running:
        worker = running.worker
        calls = worker._runner.ledger.calls
        await eventually(lambda: len(calls) == 4 and all(len(c.transcript.output_ids) > 4 for c in calls.values()))
        stopping = asyncio.create_task(running.stop())
        await asyncio.sleep(0.1)
        worker._puller.yield_requests(2)
        await stopping
        assert world.engine.finished.total() == 0
        assert worker._puller.wasted_tokens >= 16
    states = await world.fetch("select state from chunk where batch_id = %s", batch)
    assert {state for (state,) in states} <= {"ready", "delayed"}


async def test_nobody_is_asked_twice_to_yield(world: World) -> None:
    world.engine.token_seconds, world.engine.answer_tokens = 0.05, 30
    batch = await world.submit([f"question {n}" for n in range(4)])
    async with world.worker() as running:
        puller, calls = running.worker._puller, running.worker._runner.ledger.calls
        await eventually(lambda: len(calls) == 4 and all(call.transcript.output_ids for call in calls.values()))
        puller.yield_requests(2)
        puller.yield_requests(2)
        assert puller.yields == 2
        puller.yield_requests(3)
        assert puller.yields == 3
        await world.finished(batch)
    assert sorted(row[5] for row in await results(world, batch)) == [0, 1, 1, 1]


async def test_after_a_fault_of_the_scheduler_those_leave_too_that_have_yielded_three_times(world: World) -> None:
    """It runs none of them, and as long as one is in the engine, nothing else is sent."""
    world.engine.script({"mode": "hang", "times": 1, "after": 2})
    batch = await world.submit(["one patient question"])
    async with world.worker() as running:
        puller, ledger = running.worker._puller, running.worker._runner.ledger
        await eventually(lambda: ledger.calls)
        [call] = ledger.calls.values()
        call.yields = 3
        assert ledger.victims(1) == []
        puller.allow(0, surplus=1, all_yield=True)
        await eventually(lambda: call not in ledger.calls.values())
        await world.finished(batch)
    assert [row[1] for row in await results(world, batch)] == [1]


def test_what_has_yielded_goes_on_before_what_has_not_begun() -> None:
    chunk = OpenChunk.of(replace(LEASE, attempt=0), ITEMS, 4)
    first = chunk.pending.popleft()
    task = cast("asyncio.Task[None]", SimpleNamespace(cancel=lambda: None))
    chunk.start(first, task)
    chunk.park(first.seq)
    assert chunk.ended(first.seq) == 0
    assert [item.seq for item in chunk.pending] == [0, 1]
