"""Whatever fails, the gate ends closed: nothing of the queue reaches the engine, and it heals by itself."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from app import clock, processes
from app.engines import service as engines
from app.headroom import controller
from testing.waiting import eventually
from tests.clock import Clock
from tests.gpu.world import Running, World, process
from tests.timing import note
from workers.gpu import control_loop

FAST = {"stale_seconds": 0.4, "probe_seconds": 0.2, "control_seconds": 0.02, "lease_seconds": 30}


def sent(world: World) -> int:
    """Queue items that reached the engine, continuations included; the healing probe is none."""
    return sum(not (body.get("prompt") == "0" and body["max_tokens"] == 1) for body in world.engine.bodies)


def closed(running: Running) -> bool:
    puller, runner = running.worker._puller, running.worker._runner
    return puller.allowance == 0 and not runner.gate.is_set()


@asynccontextmanager
async def busy(world: World, **changes: Any) -> AsyncIterator[tuple[Running, int]]:
    """A worker with 8 long requests in the engine and 24 behind them, and their batch."""
    world.engine.token_seconds, world.engine.answer_tokens = 0.2, 100
    batch = await world.submit([f"question {n}" for n in range(32)])
    async with world.worker(**FAST | {"batch_max_in_flight": 8} | changes) as running:
        calls = running.worker._runner.ledger.calls
        await eventually(lambda: len(calls) == 8 and all(call.transcript.started for call in calls.values()))
        yield running, batch


async def healed(world: World, batch: int) -> None:
    """The batch comes to its end, every item once and well."""
    world.engine.token_seconds = 0.0
    await world.finished(batch)
    results = await world.results(batch)
    assert sorted(results) == list(range(32))
    assert all(ok for ok, _, _ in results.values())


def hang(world: World) -> None:
    world.engine.metrics_fault = "hang"


def error(world: World) -> None:
    world.engine.metrics_fault = "error"


def repeat(world: World) -> None:
    world.engine.metrics_text = world.engine.page()


@pytest.mark.parametrize("freeze", [hang, pytest.param(error, marks=pytest.mark.slow), repeat])
async def test_while_metrics_stand_still_no_queue_item_is_sent_and_what_runs_yields(
    world: World, monkeypatch: pytest.MonkeyPatch, freeze: Callable[[World], None]
) -> None:
    monkeypatch.setattr(controller, "YIELD_STALE_SECONDS", 1.5)
    async with busy(world) as (running, batch):
        worker = running.worker
        freeze(world)
        await eventually(lambda: worker._control.decision.reason == "closed_stale")
        assert closed(running)
        detected = sent(world)
        await eventually(lambda: not worker._runner.calling)
        assert worker._puller.yields == 8
        await eventually(lambda: worker._control.probes >= 3)
        assert (sent(world) - detected, closed(running)) == (0, True)
        note(f"/metrics frozen ({freeze.__name__}): 0 queue items sent while closed, {worker._control.probes} probes")
        world.engine.metrics_fault, world.engine.metrics_text = "", None
        await eventually(lambda: worker._puller.allowance > 0)
        await healed(world, batch)


async def test_an_engine_that_stood_still_is_believed_again_by_the_probe_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its counters stand still because it computes nothing; with nothing in it they would do so for ever."""
    monkeypatch.setattr(controller, "YIELD_STALE_SECONDS", 1.5)
    world.engine.script(
        {"match": "question", "mode": "hang", "after": 3}, {"match": "0", "mode": "status", "status": 500, "times": 2}
    )
    async with busy(world) as (running, batch):
        worker = running.worker
        await eventually(lambda: worker._control.decision.reason == "closed_stale")
        detected = sent(world)
        await eventually(lambda: not worker._runner.calling)
        await eventually(lambda: world.engine.count["0"] >= 2)  # both failing probes have come
        assert (sent(world) - detected, closed(running)) == (0, True)
        world.engine.script()
        await eventually(lambda: worker._puller.allowance > 0)
        assert worker._control.probes == 3
        await healed(world, batch)


async def test_a_worker_that_was_starved_does_not_take_its_own_absence_for_the_engines_silence(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of this process stands still, for more than twice as long as telemetry may be old."""
    async with busy(world) as (running, batch):
        control = running.worker._control
        await eventually(lambda: control.decision.allowance > 0)
        closed_before = control.changes["closed_stale"]
        Clock.of(asyncio.get_running_loop(), monkeypatch).advance(1.0)
        woken = clock.monotonic()
        await eventually(lambda: control.sampler.latest is not None and control.sampler.latest.sampled_at > woken)
        await eventually(lambda: control.state.acted_on > woken)
        assert control.changes["closed_stale"] == closed_before
        await healed(world, batch)


async def test_a_sample_from_the_future_closes_the_gate_until_a_true_one_comes(world: World) -> None:
    async with busy(world, stale_seconds=5) as (running, batch):
        sampler = running.worker._control.sampler
        hang(world)
        assert sampler.latest is not None
        jumped = replace(sampler.latest, sampled_at=clock.monotonic() + 3600)
        sampler.latest = jumped
        await eventually(lambda: running.worker._control.decision.reason == "closed_stale")
        assert closed(running)
        world.engine.metrics_fault = ""
        await eventually(lambda: running.worker._puller.allowance > 0)
        assert sampler.latest.sampled_at <= clock.monotonic()
        await healed(world, batch)


async def test_a_controller_that_raises_closes_the_gate_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with busy(world) as (running, batch):
        raised = 0

        def broken(*args: Any) -> Any:
            nonlocal raised
            raised += 1
            raise ZeroDivisionError

        with monkeypatch.context() as patch:
            patch.setattr(control_loop, "decide", broken)
            await eventually(lambda: raised > 0)
            detected = sent(world)
            world.engine.token_seconds = 0.0  # all that runs ends, and makes room
            await eventually(lambda: not running.worker._runner.calling)
            ticks = raised
            await eventually(lambda: raised >= ticks + 5)
            assert (sent(world) - detected, closed(running)) == (0, True)
            assert running.worker._control.decision.reason == "closed_unknown"
        await healed(world, batch)


async def test_a_killed_engine_gets_nothing_until_it_is_back(world: World) -> None:
    port = processes.free_port()
    command = [sys.executable, "-m", "testing.fakes.engine", "--port", str(port), "--latency", "0.3"]
    batch = await world.submit([f"question {n}" for n in range(64)])
    engine = await asyncio.create_subprocess_exec(*command)
    try:
        async with world.worker(engine_url=f"http://127.0.0.1:{port}") as running:
            await eventually(lambda: running.worker._runner.calling)
            engine.send_signal(signal.SIGKILL)
            await engine.wait()
            await eventually(lambda: running.worker._health.fault is not None and closed(running))
            entered = _entering(running)
            await world.until("exists (select from engine where state = 'down' or reason = 'engine_down')")
            await world.until("not exists (select from chunk where state = 'leased')")
            assert (entered, closed(running)) == ([], True)
            engine = await asyncio.create_subprocess_exec(*command)
            await world.finished(batch)
            assert entered
        results = await world.results(batch)
        assert sorted(results) == list(range(64))
        assert all(ok for ok, _, _ in results.values())
    finally:
        engine.kill()
        await engine.wait()


def _entering(running: Running) -> list[float]:
    """From now on, when each request was sent."""
    ledger, moments = running.worker._runner.ledger, list[float]()
    enter = ledger.enter
    ledger.enter = lambda task, call: (moments.append(clock.monotonic()), enter(task, call))[1]  # type: ignore[method-assign,func-returns-value]
    return moments


async def test_a_stopped_worker_is_not_announced_and_sends_nothing_until_its_lease_is_confirmed(world: World) -> None:
    world.engine.token_seconds, world.engine.answer_tokens = 0.02, 60
    batch = await world.submit([f"question {n}" for n in range(64)])
    async with process(world, LEASE_SECONDS="1") as child:
        await world.until("count(*) > 0 from item_result")
        await _between_sends(world)
        child.send_signal(signal.SIGSTOP)
        await world.until("not exists (select from worker where lease_until > now())")
        async with world.database.durable() as conn:
            assert [engine.controlled for engine in await engines.list_engines(conn)] == [False]
        async with world.database.transaction() as conn:
            await conn.execute("lock table worker in share mode")  # nobody gets or renews a lease
            await eventually(lambda: not world.engine.running)
            before = sent(world)
            child.send_signal(signal.SIGCONT)
            await world.until(
                "exists (select from pg_stat_activity where wait_event_type = 'Lock' and application_name like '%%gpu engine%%')"
            )
            await asyncio.sleep(0.2)
            assert sent(world) == before
        world.engine.token_seconds = 0.0
        await world.finished(batch)
    assert sorted(await world.results(batch)) == list(range(64))


async def _between_sends(world: World) -> None:
    """Wait for a moment at which the worker is not about to send: what it had begun before a stop it would end after it."""
    count = -1
    while (now := sent(world)) != count:
        count = now
        await asyncio.sleep(0.2)


async def test_the_first_decision_after_a_sample_that_shows_waiting_callers_closes_the_gate(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided: list[tuple[float, str, int, bool]] = []
    decide = control_loop.decide

    def watching(state: Any, signals: Any, limits: Any) -> Any:
        state, decision = decide(state, signals, limits)
        shows = signals.scrape is not None and signals.scrape.gauges is not None and signals.scrape.gauges.waiting > 0
        decided.append((signals.scrape.sampled_at if shows else 0.0, decision.reason, decision.allowance, shows))
        return state, decision

    async with busy(world, control_seconds=0.1) as (running, batch):
        monkeypatch.setattr(control_loop, "decide", watching)
        world.engine.extra_waiting = 1
        await eventually(lambda: any(shows for *_, shows in decided))
        at = clock.monotonic()
        first = next(entry for entry in decided if entry[3])
        assert first[1:3] == ("closed_sync_waiting", 0)
        assert closed(running)
        note(f"L1 after a sample with a waiting caller was begun: closed within {1000 * (at - first[0]):.0f} ms")
        world.engine.extra_waiting = 0
        await healed(world, batch)
