"""The law of the gate: when it is closed, and that it never grants more than is free."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.headroom.controller import Decision, Limits, Reason, Sample, State, decide
from app.headroom.metrics import EngineGauges

LIMITS = Limits(cap=16, slots=32, reserve=2, kv_ceiling=0.85, stale_seconds=1.5)
IDLE = EngineGauges(running=0, waiting=0, kv_usage=0.0, generation_tokens=0, prompt_tokens=0, preemptions=0)


def gauges(**changes: float) -> EngineGauges:
    return dataclasses.replace(IDLE, **changes)


def law(sample: Sample | None, now: float = 10.0, limits: Limits = LIMITS) -> Decision:
    return decide(State(), sample, limits, now)[1]


@pytest.mark.parametrize(
    ("sample", "reason", "allowance"),
    [
        (None, Reason.CLOSED_UNKNOWN, 0),
        (Sample(None, 10.0, 0), Reason.CLOSED_UNKNOWN, 0),
        (Sample(IDLE, 8.4, 0), Reason.CLOSED_STALE, 0),
        (Sample(IDLE, 10.1, 0), Reason.CLOSED_STALE, 0),
        (Sample(IDLE, 8.6, 0), Reason.OPEN, 16),
        (Sample(gauges(waiting=1), 10, 0), Reason.CLOSED_SYNC_WAITING, 0),
        (Sample(gauges(running=8, waiting=2), 10, 9), Reason.CLOSED_SYNC_WAITING, 0),
        (Sample(gauges(running=8, waiting=2), 10, 10), Reason.OPEN, 16),
        (Sample(gauges(kv_usage=0.85), 10, 0), Reason.CLOSED_KV, 0),
        (Sample(gauges(kv_usage=float("nan")), 10, 0), Reason.CLOSED_KV, 0),
        (Sample(gauges(running=30), 10, 0), Reason.CLOSED_SLOTS, 0),
        (Sample(gauges(running=30), 10, 12), Reason.CLOSED_SLOTS, 12),
        (Sample(gauges(running=32), 10, 12), Reason.CLOSED_SLOTS, 10),
        (Sample(gauges(running=29), 10, 0), Reason.OPEN, 1),
        (Sample(gauges(running=20), 10, 4), Reason.OPEN, 14),
        (Sample(gauges(running=20), 10, 16), Reason.OPEN, 16),
    ],
)
def test_each_reason_holds_exactly_when_its_signal_says_so(sample: Sample, reason: Reason, allowance: int) -> None:
    decision = law(sample)
    assert (decision.reason, decision.allowance) == (reason, allowance)


def test_an_engine_without_any_request_for_an_hour_is_idle_not_stale() -> None:
    state = State()
    for tick in range(0, 3600, 60):
        state, decision = decide(state, Sample(IDLE, float(tick), 0), LIMITS, tick + 0.2)
        assert decision.reason is Reason.OPEN
    assert state.since == 0.2


def test_the_state_remembers_since_when_its_reason_holds() -> None:
    state, _ = decide(State(), Sample(IDLE, 1.0, 0), LIMITS, 1.0)
    state, _ = decide(state, Sample(IDLE, 2.0, 0), LIMITS, 2.0)
    assert state == State(Reason.OPEN, 1.0)
    state, _ = decide(state, Sample(IDLE, 2.0, 0), LIMITS, 9.0)
    assert state == State(Reason.CLOSED_STALE, 9.0)


counts = st.integers(0, 600)
samples = st.builds(
    Sample,
    st.none() | st.builds(gauges, running=counts, waiting=counts, kv_usage=st.floats(0, 1)),
    st.floats(0, 100),
    counts,
)
limits = st.builds(Limits, st.integers(0, 300), st.integers(1, 300), st.integers(0, 20), st.just(0.85), st.just(1.5))


@given(samples, limits, st.floats(0, 100))
def test_never_more_than_the_cap_nor_than_the_slots_others_leave(sample: Sample, limits: Limits, now: float) -> None:
    decision = law(sample, now, limits)
    assert 0 <= decision.allowance <= limits.cap
    if decision.allowance:
        assert sample.gauges is not None
        others = sample.gauges.running + sample.gauges.waiting - sample.own
        assert decision.allowance + others <= limits.slots - limits.reserve


@given(samples, limits, st.floats(0, 100))
def test_a_closed_gate_never_admits_another_request(sample: Sample, limits: Limits, now: float) -> None:
    decision = law(sample, now, limits)
    if decision.reason is not Reason.OPEN:
        assert decision.allowance <= (sample.own if decision.reason is Reason.CLOSED_SLOTS else 0)


@given(samples, limits, st.floats(0, 100), st.integers(1, 50))
def test_more_synchronous_load_never_raises_the_allowance(
    sample: Sample, limits: Limits, now: float, more: int
) -> None:
    if sample.gauges is None:
        return
    busier = dataclasses.replace(sample.gauges, running=sample.gauges.running + more)
    before = law(sample, now, limits).allowance
    assert law(dataclasses.replace(sample, gauges=busier), now, limits).allowance <= before
