"""Claims about the latencies of callers by what was in the engine beside them."""

import asyncio

import pytest

from app import clock
from app.headroom.arrivals import Arrivals
from workers.gpu.caller_times import CallerTimes
from workers.gpu.requests_in_engine import RequestsInEngine, SentRequest


class Engine:
    """A worker's calls, at a time that the test sets, and the arrivals that it hears of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(clock, "monotonic", lambda: self.now)
        self.calls = RequestsInEngine()
        self.times = CallerTimes(self.calls.busy_since)
        self.arrivals = Arrivals(600, self.times.observe)
        self.task: asyncio.Task[None] = object()  # type: ignore[assignment]

    def batch_runs(self, since: float, until: float) -> None:
        self.now = since
        self.calls.enter(self.task, SentRequest(10, None))
        self.now = until
        self.calls.leave(self.task)

    def count(self, what: str, beside: str) -> float:
        name = f"slackwater_worker_caller_{what}_seconds_count"
        return self.times.registry.get_sample_value(name, {"beside": beside}) or 0


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    return Engine(monkeypatch)


def test_a_first_token_is_beside_batch_work_if_any_was_there_while_the_caller_waited(engine: Engine) -> None:
    engine.batch_runs(100, 105)
    for waited, beside in ((4.0, "alone"), (6.0, "batch")):
        engine.now = 110
        engine.arrivals.first_token(f"r{waited}", engine.now, waited * 1000)
        assert engine.count("ttft", beside) == 1


def test_batch_work_that_is_still_there_counts(engine: Engine) -> None:
    engine.calls.enter(engine.task, SentRequest(10, None))
    engine.arrivals.first_token("r", engine.now, 1)
    assert (engine.count("ttft", "batch"), engine.count("ttft", "alone")) == (1, 0)


def test_the_gaps_of_a_stream_are_beside_what_ran_since_its_first_token(engine: Engine) -> None:
    for name, begins, beside in (("early", 101.0, "batch"), ("late", 106.0, "alone")):
        engine.batch_runs(100, 105)
        engine.arrivals.arrived(name, 10, 10, begins)
        engine.arrivals.first_token(name, begins, None)
        engine.now = 110
        engine.arrivals.finished(name, engine.now, 20, 30)
        assert engine.count("itl", beside) == 1


def test_what_was_not_measured_is_not_counted_and_both_kinds_begin_at_zero(engine: Engine) -> None:
    engine.arrivals.arrived("r", 10, 10, engine.now)
    engine.arrivals.first_token("r", engine.now)
    engine.arrivals.finished("r", engine.now)
    samples = {s.name: s.value for metric in engine.times.registry.collect() for s in metric.samples}
    assert {value for name, value in samples.items() if name.endswith("_count")} == {0}
