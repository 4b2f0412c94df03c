"""What the step meter learns from counters, from the engine's own word, and what teaches it nothing."""

from dataclasses import replace

import pytest

from app.headroom.engine_metrics import EngineGauges
from app.headroom.signals import BatchLoad, Scrape, StepTime
from app.headroom.step_meter import LEARNT, LIVE_SECONDS, StepMeter

PERIOD = 0.15
BUSY = EngineGauges(8, 0, 0.1, 0, 0, 0, steps=1000, step_tokens=50_000, kv_capacity=100_000)


def seconds_of(tokens: float) -> float:
    """The steps of an engine that is waiting for weights and reads each token's context for next to nothing."""
    return 0.010 + 0.0001 * tokens


class Engine:
    """An engine whose counters go on from scrape to scrape, seen by a meter."""

    def __init__(self) -> None:
        self.meter, self.now, self.gauges, self.batch = StepMeter(), 0.0, BUSY, BatchLoad()
        self.scrape()

    def scrape(self) -> None:
        self.meter.observe(Scrape(self.gauges, self.now, 0), self.batch)

    def work(self, tokens: int, *, ours: int = 0, steps: int = 10) -> None:
        """So many steps of `tokens` each, `ours` of them for batch; then a scrape."""
        self.now += steps * seconds_of(tokens)
        g = self.gauges
        self.gauges = replace(g, steps=g.steps + steps, step_tokens=g.step_tokens + steps * tokens)
        self.batch = replace(self.batch, computed_tokens=self.batch.computed_tokens + steps * ours)
        self.scrape()

    def warm(self) -> None:
        for k in range(2 * LEARNT):
            self.work(10 + 17 * k % 150)

    def told(self, synchronous: int = 0) -> StepTime | None:
        return self.meter.now(Scrape(self.gauges, self.now, 0), self.batch, synchronous)


def test_nothing_is_said_before_enough_was_seen_nor_without_a_scrape() -> None:
    engine = Engine()
    for _ in range(LEARNT - 1):
        engine.work(50)
        assert engine.told() is None
    engine.work(50)
    assert engine.told() is not None
    assert engine.meter.now(None, BatchLoad(), 0) is None
    assert engine.meter.now(Scrape(None, engine.now, 0), BatchLoad(), 0) is None


def test_seconds_and_tokens_of_a_step_come_from_the_counters_of_two_scrapes() -> None:
    engine = Engine()
    engine.warm()
    for _ in range(10):
        engine.work(60)
    steps = engine.told(synchronous=20)
    assert steps is not None
    assert steps.measured == pytest.approx(seconds_of(60))
    assert steps.decode == pytest.approx(seconds_of(20), rel=0.1)
    assert steps.shortest == pytest.approx(seconds_of(1), rel=0.15)
    assert steps.per_request == pytest.approx(0.0001, rel=0.5)


def test_engines_that_share_a_metrics_page_each_take_their_own_steps() -> None:
    one, two = Engine(), Engine()
    for engine in (one, two):
        engine.warm()
        for _ in range(10):
            engine.work(60)
    both = StepMeter()
    for k in range(60):
        gauges = replace(BUSY, steps=1000 + 20 * k, step_tokens=50_000 + 1200 * k, engines=2, kv_capacity=200_000)
        both.observe(Scrape(gauges, 10 * k * seconds_of(60), 0), BatchLoad())
    steps = both.now(Scrape(gauges, 0.0, 0), BatchLoad(), 40)
    alone = one.told(synchronous=20)
    assert steps is not None
    assert alone is not None
    assert steps.measured == pytest.approx(alone.measured)


def test_what_was_computed_for_us_is_taken_from_the_step_to_tell_what_it_would_have_been_alone() -> None:
    engine = Engine()
    engine.warm()
    for _ in range(10):
        engine.work(120, ours=100)
    steps = engine.told()
    assert steps is not None
    assert steps.measured == pytest.approx(seconds_of(120))
    assert steps.alone == pytest.approx(seconds_of(20), rel=0.1)
    for _ in range(10):
        engine.work(120)
    alone = engine.told()
    assert alone is not None
    assert alone.alone == pytest.approx(seconds_of(120), rel=0.1)


def test_more_of_ours_than_there_was_leaves_a_step_of_one_token_not_of_less() -> None:
    engine = Engine()
    engine.warm()
    for _ in range(10):
        engine.work(50, ours=500)
    steps = engine.told()
    assert steps is not None
    assert steps.alone == pytest.approx(steps.shortest, rel=0.1)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 3, "step_tokens": 50},
        {"running": 0, "steps": BUSY.steps + 9, "step_tokens": BUSY.step_tokens + 450},
        {"steps": BUSY.steps},
        {"steps": BUSY.steps + 900, "step_tokens": 7},
    ],
    ids=["a restart", "idleness", "no step", "fewer tokens"],
)
def test_a_restart_idleness_and_steps_without_count_teach_nothing_and_are_not_meant_over(
    change: dict[str, int],
) -> None:
    engine = Engine()
    for _ in range(LEARNT):
        engine.gauges = BUSY
        engine.scrape()
        engine.work(50)
    samples = engine.meter.model.samples
    engine.gauges = BUSY
    engine.scrape()
    before = engine.meter.model.samples
    engine.gauges = replace(BUSY, **change)
    engine.now += PERIOD
    engine.scrape()
    assert engine.meter.model.samples == before == samples
    assert engine.told() is None


def test_an_unreadable_scrape_parts_what_was_before_from_what_comes_after() -> None:
    engine = Engine()
    engine.warm()
    samples = engine.meter.model.samples
    engine.meter.observe(Scrape(None, engine.now, 0), engine.batch)
    engine.work(5000)
    assert engine.meter.model.samples == samples


def test_steps_are_meant_over_the_last_moments_only() -> None:
    engine = Engine()
    engine.warm()
    for _ in range(10):
        engine.work(1)
    for _ in range(4):
        engine.work(140)
    steps = engine.told()
    assert steps is not None
    assert steps.measured == pytest.approx(seconds_of(140))


# ---------------------------------------------------------------- steps that the engine itself reports


def report(engine: Engine, steps: int, tokens: int, *, ours: int = 0) -> None:
    for _ in range(steps):
        engine.now += seconds_of(tokens)
        engine.meter.observe_step(engine.now, tokens, 0.0, True, ours)


def test_each_reported_step_teaches_and_the_first_after_idleness_does_not() -> None:
    engine = Engine()
    report(engine, 1, 50)
    assert engine.meter.model.samples == 0
    report(engine, 3, 50)
    assert engine.meter.model.samples == 3
    engine.now += seconds_of(50)
    engine.meter.observe_step(engine.now, 50, 0.0, busy=False, ours=0)
    engine.now += 0.5
    engine.meter.observe_step(engine.now, 50, 0.0, busy=True, ours=0)
    assert engine.meter.model.samples == 4


def test_reported_steps_tell_what_was_ours() -> None:
    engine = Engine()
    for k in range(40):
        report(engine, 3, 10 + 17 * k % 150)
    report(engine, 60, 120, ours=100)
    steps = engine.told()
    assert steps is not None
    assert steps.measured == pytest.approx(seconds_of(120))
    assert steps.alone == pytest.approx(seconds_of(20), rel=0.1)


def test_counters_teach_nothing_while_the_engine_tells_its_steps_and_again_when_it_has_fallen_silent() -> None:
    engine = Engine()
    report(engine, 5, 50)
    engine.work(50)
    assert engine.meter.model.samples == 4
    engine.now += LIVE_SECONDS
    engine.scrape()
    engine.work(50)
    assert engine.meter.model.samples > 4
