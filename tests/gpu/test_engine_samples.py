"""Claims about the history that a worker writes: what its engine did, and when and where each item ran."""

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from app.changes import service as changes
from app.headroom import samples
from app.headroom.samples import Counters
from tests.gpu.world import World
from workers.engine.control_page import Report
from workers.gpu import engine_samples
from workers.gpu.engine_samples import EngineSamples, _OtherTokens
from workers.gpu.requests_in_engine import RequestsInEngine


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_samples, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(engine_samples, "SAMPLE_SECONDS", 0.2)


async def test_a_worker_writes_samples_of_its_engine_and_the_times_of_its_items(world: World) -> None:
    async with world.worker():
        await world.until("exists (select from engine_sample)")
        batch = await world.submit(["hello"] * 6, chunk=3)
        await world.finished(batch)
        await world.until("(select sum(batch_tokens) > 0 from engine_sample)")
    rows = await world.fetch("select engine_id, queued_ms, ran_ms, error from item_result")
    assert len(rows) == 6
    assert all(engine == 1 and queued >= 0 and ran >= 0 and error is None for engine, queued, ran, error in rows)
    [(seconds, allowance)] = await world.fetch("select max(seconds), max(allowance) from engine_sample")
    assert seconds > 0.1
    assert allowance > 0


async def test_a_worker_that_starts_and_stops_leaves_its_trace_in_the_timeline(world: World) -> None:
    async with world.worker():
        await world.until("exists (select from engine where state = 'ready')")
    async with world.database.durable() as conn:
        found = await changes.page(conn, limit=20)
    kinds = [each.kind for each in reversed(found) if each.kind.startswith("engine.")]
    assert kinds[0] == "engine.ready"
    assert kinds[-1] == "engine.released"


async def test_a_sample_that_could_not_be_stored_is_stored_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    record, failed, stored = samples.record, [], []

    async def fails(*given: object) -> None:
        *_, ended = given
        if len(failed) < 2:
            failed.append(ended)
            raise TimeoutError
        await record(*given)  # type: ignore[arg-type]
        stored.append(ended)

    monkeypatch.setattr(samples, "record", fails)
    async with world.worker():
        await world.until("(select count(*) from engine_sample) >= 4")
    assert len(failed) == 2
    assert set(failed) <= set(stored)


def test_tokens_of_others_are_all_without_ours_and_a_new_engine_counts_from_zero() -> None:
    others, counts = _OtherTokens(), []
    for given in ((1000, 0), (1500, 200), (None, 200), (40, 200), (100, 250)):
        others.see(True)
        counts.append(others.count(*given))
    assert counts == [0, 300, 300, 300, 310]


def test_what_an_engine_computed_for_lost_requests_of_ours_is_nobody_elses() -> None:
    others = _OtherTokens()
    assert [others.count(*given) for given in ((1000, 0), (1700, 0), (2400, 0))] == [0, 0, 0]
    others.see(True)
    assert [others.count(*given) for given in ((2500, 0), (2530, 0), (2600, 0))] == [100, 130, 130]


def test_tokens_of_an_answer_that_still_runs_are_counted_by_the_scheduler_that_computes_them() -> None:
    harvest = SimpleNamespace(report=Report(batch_tokens=700, sync_tokens=30, evictions=2))
    control: Any = SimpleNamespace(harvest=harvest, sampler=SimpleNamespace(latest=None))
    ledger, puller = RequestsInEngine(), SimpleNamespace(yields=5)
    watched = EngineSamples(Mock(), control, cast(Any, puller), ledger, lambda: None)
    assert watched._counters() == Counters(True, 700, 30, 5, 2)
    harvest.report = Report(supported=False)  # vLLM schedules alone, and our scheduler counts nothing
    assert watched._counters() == Counters(False, 0, 0, 5)
