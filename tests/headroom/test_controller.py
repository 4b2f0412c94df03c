"""The law of the gate: when it closes, how its window moves, and what it never does."""

import math
from dataclasses import replace

import pytest

from app.headroom.arrivals import SyncLoad
from app.headroom.controller import (
    DRAIN,
    HOLD_SECONDS,
    SLOW_START,
    STUCK_SECONDS,
    SYNC_EXPECTED_SECONDS,
    YIELD_STALE_SECONDS,
    State,
    decide,
    urgency,
)
from app.headroom.gate_rules import HeadroomLimits, Reason
from app.headroom.signals import Scrape, Signals, StepTime
from app.headroom.silence_limit import Stall
from tests.headroom.support import LIMITS, LISTENING, MEAN, SHIPPED, STEPS, WIDE, follow, law, look
from workers.engine.quiet import Quiet

# ---------------------------------------------------------------- reasons


@pytest.mark.parametrize(
    ("signals", "reason", "allowance"),
    [
        (replace(look(), scrape=None), Reason.CLOSED_UNKNOWN, 0),
        (replace(look(), scrape=Scrape(None, 10.0, 0)), Reason.CLOSED_UNKNOWN, 0),
        (look(age=1.51), Reason.CLOSED_STALE, 0),
        (look(age=-0.1), Reason.CLOSED_STALE, 0),
        (look(age=1.5), Reason.OPEN, 16),
        (look(waiting=1), Reason.CLOSED_SYNC_WAITING, 0),
        (look(own=9, running=8, waiting=2), Reason.CLOSED_SYNC_WAITING, 0),
        (look(own=10, running=8, waiting=2), Reason.OPEN, 16),
        (look(sync=SyncLoad(1, 1, 3073)), Reason.YIELD_BURST, 0),
        (look(sync=SyncLoad(1, 1, 3072)), Reason.HOLD, 16),
        (look(kv=0.85), Reason.CLOSED_KV, 0),
        (look(kv=math.nan), Reason.CLOSED_KV, 0),
        (look(kv=0.849), Reason.OPEN, 16),
        (look(running=30), Reason.CLOSED_SLOTS, 0),
        (look(own=12, running=30), Reason.FULL, 12),
        (look(own=12, running=32), Reason.CLOSED_SLOTS, 10),
        (look(running=29), Reason.HOLD, 1),
        (look(own=4, running=20), Reason.HOLD, 14),
        (look(own=16, running=20), Reason.HOLD, 16),
    ],
)
def test_each_reason_holds_exactly_when_its_signal_says_so(signals: Signals, reason: Reason, allowance: int) -> None:
    decision = law(signals)
    assert (decision.reason, decision.allowance) == (reason, allowance)


def test_at_shipped_settings_reserved_slots_and_a_full_cache_get_no_batch_request() -> None:
    """What operators have not set, and no test has made smaller. An engine has 256 slots."""
    limits = HeadroomLimits.of(SHIPPED, 256)
    assert (limits.cap, limits.kv_ceiling, limits.burst_tokens) == (254, 0.85, 3072)
    assert law(look(own=253, running=253), WIDE, limits).allowance == 254
    for full in (
        look(own=250, running=254),
        look(own=250, running=250, kv=0.85),
        look(own=250, running=250, waiting=1),
    ):
        assert law(full, WIDE, limits).allowance <= 250


def test_a_sleeping_engine_gets_no_batch_work_and_is_not_at_fault() -> None:
    seen = look(age=30.0, own=3, running=3)
    assert seen.scrape is not None
    assert seen.scrape.gauges is not None
    still = replace(seen.scrape, gauges=replace(seen.scrape.gauges, asleep=True), frozen=True)
    decision = law(replace(seen, scrape=still))
    assert (decision.reason, decision.allowance, decision.surplus) == (Reason.CLOSED_ASLEEP, 0, 0)
    assert law(replace(seen, scrape=replace(still, frozen=False))).reason is Reason.CLOSED_STALE


def test_a_decision_names_the_comparison_that_decided_it() -> None:
    full = law(look(own=12, running=32))
    assert (full.signal, full.value, full.threshold) == ("load", 32, 30)
    stale = law(look(age=2.0))
    assert (stale.signal, stale.value, stale.threshold) == ("age_seconds", 2.0, 1.5)
    slow = law(look(sync=LISTENING, steps=replace(STEPS, measured=0.030)))
    assert (slow.signal, slow.value, slow.threshold) == ("step_seconds", 0.030, 0.025)


def test_what_was_admitted_since_the_scrape_counts_as_load_until_a_scrape_shows_it() -> None:
    assert law(look(own=10, seen=4, running=24)).allowance == 10
    assert law(look(own=10, seen=10, running=24)).allowance == 16


def test_the_state_remembers_since_when_its_reason_holds() -> None:
    state, _ = follow([look(1.0), look(2.0)])
    assert (state.reason, state.since) == (Reason.OPEN, 1.0)
    state, _ = decide(state, look(9.0, age=7.0), LIMITS)
    assert (state.reason, state.since) == (Reason.CLOSED_STALE, 9.0)


def test_an_engine_without_any_request_for_an_hour_is_idle_not_stale() -> None:
    state, decision = follow(look(float(tick), age=0.2) for tick in range(0, 3600, 60))
    assert decision.allowance == 16
    assert (state.reason, state.since) == (Reason.OPEN, 0.0)


# ---------------------------------------------------------------- failing telemetry


def test_stale_telemetry_leaves_what_runs_alone_for_five_seconds_and_then_has_all_of_it_yield() -> None:
    assert law(look(own=8, age=YIELD_STALE_SECONDS)).surplus == 0
    assert law(look(own=8, age=YIELD_STALE_SECONDS + 0.1)).surplus == 8


def test_telemetry_that_became_unreadable_has_everything_yield_and_a_worker_that_never_saw_any_has_not() -> None:
    unreadable = replace(look(own=8), scrape=Scrape(None, 10.0, 8))
    assert law(unreadable).surplus == 8
    assert law(replace(unreadable, scrape=None)).surplus == 0


def test_time_in_which_we_did_not_run_does_not_age_telemetry() -> None:
    assert law(look(age=4.0)).reason is Reason.CLOSED_STALE
    assert law(replace(look(age=4.0), stalls=(Stall(9.9, 3.5),))).reason is not Reason.CLOSED_STALE


def test_the_age_that_closes_is_that_which_was_learned_and_the_message_has_it() -> None:
    seen = look(own=8, age=4.0)
    assert seen.scrape is not None
    assert law(replace(seen, scrape=replace(seen.scrape, limit=5.0))).reason is not Reason.CLOSED_STALE
    frozen = law(replace(seen, scrape=replace(seen.scrape, limit=3.0, frozen=True)))
    assert (frozen.signal, frozen.value, frozen.threshold) == ("still_seconds", 4.0, 3.0)


def test_between_two_scrapes_a_reason_keeps_the_comparison_that_decided() -> None:
    state, first = decide(WIDE, look(10.0, own=2, sync=LISTENING), LIMITS)
    assert (first.reason, first.signal) == (Reason.HOLD, "unknown_steps")
    between = replace(look(10.1, own=2, age=0.1, sync=LISTENING, steps=STEPS))
    _, later = decide(state, between, LIMITS)
    assert (later.reason, later.signal, later.threshold) == (Reason.HOLD, "unknown_steps", 1.0)


def test_after_a_failure_the_window_starts_again_from_four_requests() -> None:
    state, _ = follow([look(9.0, age=3.0)])
    assert (state.window, state.slow_start) == (4 * MEAN, True)
    assert law(look(10.0, own=4), state).reason is Reason.RAMP


def test_a_static_cap_heeds_nothing_but_failing_telemetry() -> None:
    fixed = replace(LIMITS, static=True)
    assert law(look(running=32, waiting=9, kv=0.99), limits=fixed).allowance == fixed.cap
    assert law(look(age=2.0), limits=fixed).reason is Reason.CLOSED_STALE
    assert law(replace(look(), scrape=None), limits=fixed).reason is Reason.CLOSED_UNKNOWN


# ---------------------------------------------------------------- yielding


def test_synchronous_requests_that_wait_close_the_gate_at_once_and_halve_the_window_when_they_are_stuck() -> None:
    waiting = [look(10.0 + wait, own=8, running=8, waiting=1, sync=LISTENING) for wait in (0.0, STUCK_SECONDS - 0.01)]
    state, decision = follow(waiting)
    assert (decision.signal, decision.surplus, state.window) == ("sync_waiting", 0, WIDE.window)
    state, decision = decide(state, look(10.01 + STUCK_SECONDS, own=8, running=8, waiting=1), LIMITS)
    assert (decision.reason, decision.signal) == (Reason.CLOSED_SYNC_WAITING, "stuck_seconds")
    assert (decision.surplus, state.window) == (4, 4 * MEAN)


def test_being_stuck_is_measured_from_scrape_to_scrape_not_from_tick_to_tick() -> None:
    first, later = look(10.0, own=8, running=8, waiting=1), look(10.4, own=8, running=8, waiting=1, age=0.4)
    assert follow([first, later])[1].signal == "sync_waiting"


def test_a_queue_that_emptied_in_between_is_not_stuck() -> None:
    sights = [look(10.0 + 0.2 * k, own=8, running=8, waiting=int(k != 1)) for k in range(3)]
    assert follow(sights)[1].signal == "sync_waiting"


def test_a_burst_has_half_of_the_requests_yield_and_halves_the_window_only_once() -> None:
    burst = SyncLoad(3, 3, 9000)
    state, decision = decide(WIDE, look(10.0, own=8, sync=burst), LIMITS)
    assert (decision.allowance, decision.surplus, decision.tokens) == (0, 4, 4 * MEAN)
    for tick in range(1, 10):
        state, decision = decide(state, look(10.0 + 0.1 * tick, own=4, sync=burst), LIMITS)
        assert (decision.reason, decision.surplus, state.window) == (Reason.YIELD_BURST, 0, 4 * MEAN)
    state, decision = decide(state, look(10.0 + HOLD_SECONDS, own=4, sync=burst), LIMITS)
    assert (decision.surplus, state.window) == (2, 2 * MEAN)


def test_after_a_yield_the_window_is_held_for_a_second() -> None:
    state, _ = decide(WIDE, look(10.0, own=8, sync=SyncLoad(3, 3, 9000)), LIMITS)
    state, decision = decide(state, look(10.5, own=4), LIMITS)
    assert (decision.reason, decision.allowance, state.window) == (Reason.HOLD, 4, 4 * MEAN)
    state, decision = decide(state, look(10.1 + HOLD_SECONDS, own=4, steps=STEPS), LIMITS)
    assert decision.reason is Reason.OPEN
    assert state.window > 4 * MEAN


def test_overdrawn_slots_are_given_back_unless_all_of_the_load_is_ours() -> None:
    assert law(look(own=12, running=32)).surplus == 2
    assert law(look(own=32, running=32)).surplus == 0


def test_while_a_synchronous_prompt_is_computed_no_batch_prompt_is_started() -> None:
    assert law(look(sync=SyncLoad(1, 1, 100))).prefill_tokens == 0
    assert law(look(sync=SyncLoad(1, 0, 0))).prefill_tokens == LIMITS.prefill_tokens


# ---------------------------------------------------------------- the window


def test_the_window_moves_once_a_scrape_however_often_it_ticks() -> None:
    full = look(10.0, own=16)
    state, first = decide(State(window=16 * MEAN), full, LIMITS)
    again, second = decide(state, replace(full, now=10.1), LIMITS)
    assert (state.window, first.reason) == (16 * MEAN * SLOW_START, Reason.RAMP)
    assert (again.window, second.reason) == (state.window, Reason.RAMP)


def test_slow_start_ends_when_less_than_a_quarter_of_the_extra_step_time_is_left() -> None:
    begun = State(window=8 * MEAN, sync_seen=10.0)
    near = replace(STEPS, measured=0.022)  # 15 ms are permitted beyond the 10 ms alone; 3 are left
    state, decision = decide(begun, look(own=8, sync=LISTENING, steps=near), LIMITS)
    assert (decision.reason, state.slow_start) == (Reason.OPEN, False)
    assert state.window == pytest.approx(8 * MEAN + 4 * 0.2 * MEAN)
    roomy = replace(STEPS, measured=0.020)
    assert law(look(own=8, sync=LISTENING, steps=roomy), begun).reason is Reason.RAMP


def test_a_window_that_is_not_half_used_does_not_grow() -> None:
    begun = State(window=16 * MEAN)
    assert decide(begun, look(own=7), LIMITS)[0].window == begun.window
    assert decide(begun, look(own=8), LIMITS)[0].window > begun.window


@pytest.mark.parametrize(("measured", "left"), [(0.025, None), (0.0265, 0.99), (0.030, 0.9667), (10.0, DRAIN)])
def test_steps_beyond_the_budget_drain_what_is_used_of_the_window_and_never_more_than_a_tenth_a_scrape(
    measured: float, left: float | None
) -> None:
    steps = replace(STEPS, measured=measured)
    state, decision = decide(WIDE, look(own=10, sync=LISTENING, steps=steps), LIMITS)
    assert decision.surplus == 0
    if left is None:
        assert decision.reason is not Reason.SHRINK_LATENCY
    else:
        assert decision.reason is Reason.SHRINK_LATENCY
        assert state.window == pytest.approx(10 * MEAN * left, rel=1e-3)


def test_one_request_is_left_to_steps_that_stay_too_long() -> None:
    slow = replace(STEPS, measured=1.0)
    sights = [look(10 + k / 5, own=10, sync=LISTENING, steps=slow) for k in range(60)]
    assert follow(sights)[1].allowance == 1


def test_the_step_model_caps_the_window_ahead_of_any_harm() -> None:
    decision = law(look(sync=LISTENING, steps=replace(STEPS, measured=0.0)))
    assert decision.allowance == 15  # (25 ms permitted - 10 ms of decoding) / 1 ms each


def test_where_synchronous_work_alone_takes_longer_than_the_budget_batch_may_add_a_twentieth() -> None:
    heavy = StepTime(measured=0.200, alone=0.200, decode=0.010, shortest=0.005, per_request=0.001)
    assert law(look(sync=LISTENING, steps=replace(heavy, measured=0.209))).reason is Reason.OPEN
    beyond = law(look(sync=LISTENING, steps=replace(heavy, measured=0.211)))
    assert (beyond.reason, beyond.threshold) == (Reason.SHRINK_LATENCY, pytest.approx(0.210))


def test_without_synchronous_requests_for_five_seconds_steps_may_take_their_idle_length() -> None:
    slow = replace(STEPS, measured=0.040)
    state, decision = decide(WIDE, look(10.0, own=4, sync=LISTENING, steps=slow), LIMITS)
    assert decision.reason is Reason.SHRINK_LATENCY
    still = look(9.9 + SYNC_EXPECTED_SECONDS, own=4, steps=slow)
    assert law(still, state).reason is Reason.SHRINK_LATENCY
    usual = replace(state, quiet=Quiet(10.0, 2 * SYNC_EXPECTED_SECONDS))
    calm = law(look(10.1 + SYNC_EXPECTED_SECONDS, own=4, steps=slow), usual)
    assert (calm.reason, calm.threshold) == (Reason.OPEN, LIMITS.step.idle_step)


def test_after_a_long_silence_idle_steps_may_be_long_and_the_first_caller_makes_the_surplus_yield() -> None:
    slow = replace(STEPS, measured=0.200)
    state, _ = decide(WIDE, look(10.0, own=16, sync=LISTENING, steps=slow), LIMITS)
    night = replace(LISTENING, open=0)
    state, decision = decide(state, look(3610.0, own=16, sync=night, steps=slow), LIMITS)
    assert (decision.reason, decision.allowance) == (Reason.OPEN, LIMITS.cap)
    assert decision.threshold == pytest.approx(0.1 * 3600, rel=0.1)
    first = replace(LISTENING, last_arrival=3610.5)
    state, decision = decide(state, look(3610.5, own=16, sync=first, steps=slow), LIMITS)
    assert (decision.reason, decision.surplus) == (Reason.YIELD_BURST, 1)  # 15 requests of 1 ms each fit into 25 ms
    second = replace(first, last_arrival=3610.6)
    state, decision = decide(state, look(3610.6, own=16, sync=second, steps=slow), LIMITS)
    assert (decision.reason, decision.surplus) == (Reason.SHRINK_LATENCY, 0)


def test_idle_steps_on_a_slow_engine_may_take_twice_its_shortest() -> None:
    lone = replace(STEPS, measured=0.159, shortest=0.080)
    assert law(look(own=4, steps=lone)).reason is Reason.OPEN
    beyond = law(look(own=4, steps=replace(lone, measured=0.161)))
    assert (beyond.reason, beyond.threshold) == (Reason.SHRINK_LATENCY, pytest.approx(0.160))


def test_synchronous_requests_are_known_by_the_scrape_alone_where_no_gateway_tells() -> None:
    slow = replace(STEPS, measured=0.040)
    assert law(look(own=4, running=5, steps=slow)).reason is Reason.SHRINK_LATENCY
    assert law(look(own=4, running=4, steps=slow)).reason is not Reason.SHRINK_LATENCY


def test_the_floor_is_left_to_batch_work_unless_the_gate_is_closed() -> None:
    kept = replace(LIMITS, floor=3)
    slow = [look(10 + k / 5, own=10, sync=LISTENING, steps=replace(STEPS, measured=1.0)) for k in range(60)]
    assert follow(slow, limits=kept)[1].allowance == 3
    assert law(look(waiting=1), limits=kept).allowance == 0
    assert law(look(age=9.0), limits=kept).allowance == 0


# ---------------------------------------------------------------- deadlines


@pytest.mark.parametrize(("slack", "pressure"), [(None, 0), (0.5, 0), (0.2, 0), (0.125, 0.5), (0.05, 1), (-3, 1)])
def test_a_deadline_presses_from_a_fifth_of_its_window_on_and_fully_at_a_twentieth(
    slack: float | None, pressure: float
) -> None:
    assert urgency(slack) == pytest.approx(pressure)


@pytest.mark.parametrize(
    ("urgent", "permitted"), [(0, 0.025), (0.01, 0.03125), (0.25, 0.03125), (0.6, 0.04375), (1, 0.050), (9, 0.050)]
)
def test_as_a_deadline_comes_near_the_permitted_step_rises_in_quarters_up_to_the_ceiling(
    urgent: float, permitted: float
) -> None:
    decision = law(look(sync=LISTENING, steps=replace(STEPS, measured=0.060), urgent=urgent))
    assert (decision.reason, decision.threshold) == (Reason.SHRINK_LATENCY, pytest.approx(permitted))


def test_an_open_gate_under_a_deadline_says_so() -> None:
    assert law(look(own=4, urgent=0.1)).reason is Reason.DEADLINE_RAMP
    assert law(look(own=4, running=30, urgent=1.0)).reason is Reason.FULL
