"""What the law of the gate never does, whatever it sees and in whatever order."""

import math
from dataclasses import replace
from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from app.headroom.arrivals import SyncLoad
from app.headroom.controller import HOLD_SECONDS, SYNC_EXPECTED_SECONDS, Decision, State, decide
from app.headroom.engine_metrics import EngineGauges
from app.headroom.gate_rules import HeadroomLimits, Reason
from app.headroom.signals import BatchLoad, Scrape, Signals, StepTime
from tests.headroom.support import DEFAULT

OPEN = {Reason.OPEN, Reason.RAMP, Reason.HOLD, Reason.DEADLINE_RAMP, Reason.SHRINK_LATENCY}

counts = st.integers(0, 300)
few = st.sampled_from([0, 0, 0, 1, 7])
seconds = st.floats(1e-4, 1.0)
limits = st.builds(
    lambda **drawn: replace(DEFAULT, **drawn),
    cap=st.integers(1, 300),
    slots=st.integers(1, 300),
    reserve=st.integers(0, 20),
    floor=st.sampled_from([0, 0, 4]),
)
gauges = st.builds(
    EngineGauges,
    running=counts,
    waiting=few,
    kv_usage=st.sampled_from([0.0, 0.5, 0.84, 0.85, 1.0, math.nan]),
    generation_tokens=st.just(0),
    prompt_tokens=st.just(0),
    preemptions=st.just(0),
)
loads = st.builds(
    lambda requests, size: BatchLoad(requests, 0, requests * size), counts, st.sampled_from([1, 100, 3000])
)
syncs = st.none() | st.builds(
    SyncLoad, few, few, st.sampled_from([0, 0, 3072, 3073, 50_000]), st.just(0), st.floats(0, 100)
)
step_times = st.none() | st.builds(StepTime, seconds, seconds, seconds, seconds, st.floats(0, 0.1))
urgencies = st.floats(-1, 2)


@st.composite
def sights(draw: st.DrawFn, now: float = 10.0) -> Signals:
    scrape = None
    if draw(st.integers(0, 9)):
        found = draw(gauges) if draw(st.integers(0, 9)) else None
        age = draw(st.sampled_from([0.0, 0.0, 0.05, 0.3, 1.5, 1.6, 6.0, -0.1]))
        scrape = Scrape(found, now - age, draw(counts))
    return Signals(now, scrape, draw(loads), draw(syncs), draw(step_times), draw(urgencies))


@st.composite
def stories(draw: st.DrawFn) -> list[Signals]:
    """What one engine shows, tick by tick."""
    pauses = draw(st.lists(st.sampled_from([0.01, 0.1, 0.1, 0.2, 1.0, 6.0]), min_size=1, max_size=12))
    return [draw(sights(now)) for now in accumulate(pauses, initial=10.0)]


def told(story: list[Signals], limits: HeadroomLimits) -> list[tuple[State, Signals, State, Decision]]:
    """Each tick: the state before, what was seen, the state after, the decision."""
    state, ticks = State(), []
    for signals in story:
        after, decision = decide(state, signals, limits)
        ticks.append((state, signals, after, decision))
        state = after
    return ticks


@given(stories(), limits)
def test_the_allowance_is_never_below_0_nor_above_the_cap_and_the_slots_that_others_leave(
    story: list[Signals], limits: HeadroomLimits
) -> None:
    for _, signals, _, decision in told(story, limits):
        assert 0 <= decision.allowance <= limits.cap
        if decision.allowance:
            assert signals.scrape is not None
            assert signals.scrape.gauges is not None
            inside = signals.scrape.gauges.running + signals.scrape.gauges.waiting
            others = max(0, inside - signals.scrape.own)
            assert decision.allowance + others <= limits.slots - limits.reserve


@given(stories(), limits)
def test_whatever_is_unknown_counts_as_full(story: list[Signals], limits: HeadroomLimits) -> None:
    for _, signals, _, decision in told(story, limits):
        scrape = signals.scrape
        unknown = scrape is None or scrape.gauges is None or math.isnan(scrape.gauges.kv_usage)
        if unknown or not 0 <= signals.now - scrape.sampled_at <= limits.stale_seconds:  # type: ignore[union-attr]
            assert (decision.allowance, decision.prefill_tokens) == (0, 0)
            assert decision.reason not in OPEN


@given(st.floats(0, 1.5), limits)
def test_an_idle_engine_is_never_stale(age: float, limits: HeadroomLimits) -> None:
    idle = EngineGauges(0, 0, 0.0, 0, 0, 0)
    for now in (10.0, 3600.0, 1e6):
        decision = decide(State(), Signals(now, Scrape(idle, now - age * 0.99, 0), BatchLoad()), limits)[1]
        assert decision.reason in (OPEN | {Reason.FULL, Reason.CLOSED_SLOTS})


@given(stories(), limits)
def test_the_surplus_is_never_more_than_is_in_flight(story: list[Signals], limits: HeadroomLimits) -> None:
    for _, signals, _, decision in told(story, limits):
        assert 0 <= decision.surplus <= signals.batch.requests


@given(stories(), limits)
def test_a_window_that_is_not_half_used_never_grows(story: list[Signals], limits: HeadroomLimits) -> None:
    for before, signals, after, decision in told(story, limits):
        if decision.reason in OPEN and signals.batch.context_tokens < before.window / 2:
            assert after.window <= max(before.window, after.mean_tokens)


@given(stories(), limits)
def test_the_window_moves_only_with_a_new_scrape_a_yield_or_a_failure(
    story: list[Signals], limits: HeadroomLimits
) -> None:
    for before, signals, after, decision in told(story, limits):
        if decision.reason in OPEN and signals.scrape is not None and signals.scrape.sampled_at <= before.acted_on:
            assert after.window == before.window


@given(stories(), limits)
def test_between_two_halvings_there_is_a_second(story: list[Signals], limits: HeadroomLimits) -> None:
    halvings = [
        signals.now
        for before, signals, after, decision in told(story, limits)
        if after.hold_until != before.hold_until
        and decision.signal != "context_tokens"  # that is a yield to the first caller
    ]
    assert all(later >= earlier + HOLD_SECONDS for earlier, later in pairwise(halvings))


@given(stories(), limits)
def test_no_deadline_lifts_the_permitted_step_beyond_the_ceiling_unless_synchronous_work_does_so_itself(
    story: list[Signals], limits: HeadroomLimits
) -> None:
    for _, signals, after, decision in told(story, limits):
        if decision.signal != "step_seconds" or signals.now - after.sync_seen >= SYNC_EXPECTED_SECONDS:
            continue
        alone = (0.0, 0.0) if signals.steps is None else (signals.steps.alone, signals.steps.decode)
        itself = max((1 + limits.step.tolerance) * alone[0], limits.step.itl_stretch * alone[1])
        assert decision.threshold <= max(limits.step.itl_ceiling, itself)


@given(stories(), limits, urgencies, urgencies)
def test_more_pressure_never_permits_a_shorter_step(
    story: list[Signals], limits: HeadroomLimits, one: float, other: float
) -> None:
    state = told(story, limits)[-1][0]
    less, more = sorted((one, other))
    seen = [_under(state, story[-1], urgent, limits) for urgent in (less, more)]
    if seen[0].signal == seen[1].signal == "step_seconds":
        assert seen[0].threshold <= seen[1].threshold


def _under(state: State, signals: Signals, urgent: float, limits: HeadroomLimits) -> Decision:
    pressed = Signals(signals.now, signals.scrape, signals.batch, signals.sync, signals.steps, urgent)
    return decide(state, pressed, limits)[1]


@given(stories(), limits, st.integers(1, 50))
def test_more_requests_of_others_in_the_engine_never_raise_the_allowance(
    story: list[Signals], limits: HeadroomLimits, more: int
) -> None:
    state, signals, after, decision = told(story, limits)[-1]
    scrape = signals.scrape
    if scrape is None or scrape.gauges is None or after.sync_seen != signals.now:
        return
    g = scrape.gauges
    busier = EngineGauges(g.running + more, g.waiting, g.kv_usage, 0, 0, 0)
    crowded = Signals(
        signals.now,
        Scrape(busier, scrape.sampled_at, scrape.own),
        signals.batch,
        signals.sync,
        signals.steps,
        signals.urgency,
    )
    assert decide(state, crowded, limits)[1].allowance <= decision.allowance


@given(stories(), limits)
def test_replaying_the_same_sights_gives_the_same_decisions(story: list[Signals], limits: HeadroomLimits) -> None:
    assert told(story, limits) == told(story, limits)
