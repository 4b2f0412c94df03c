"""The proof at start-up: what it says of limits that work, and whom it names where a gate could never close or open."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.headroom import selftest
from app.headroom.gate_rules import HeadroomLimits, Reason
from app.headroom.selftest import SelfTestError, prove
from app.settings import Settings
from tests.headroom.support import DEFAULT as LIMITS


def test_every_signal_closes_the_gate_at_its_own_limit_for_its_own_reason() -> None:
    assert [(c.signal, c.closes_at, c.reason) for c in prove(LIMITS)] == [
        ("telemetry", 0, Reason.CLOSED_UNKNOWN),
        ("age_seconds", 1.5, Reason.CLOSED_STALE),
        ("sync_waiting", 1, Reason.CLOSED_SYNC_WAITING),
        ("sync_prompt_tokens", 3073, Reason.YIELD_BURST),
        ("kv_usage", 0.85, Reason.CLOSED_KV),
        ("asleep", 1, Reason.CLOSED_ASLEEP),
        ("load", 254, Reason.CLOSED_SLOTS),
        ("step_seconds", 0.022, Reason.SHRINK_LATENCY),
    ]


@pytest.mark.parametrize("slots", [4, 8, 256])
def test_the_default_settings_pass_on_engines_of_any_size(slots: int) -> None:
    closings = {closing.signal: closing.closes_at for closing in prove(HeadroomLimits.of(Settings(), slots))}
    assert closings["load"] == slots - Settings().sync_reserve_slots


@pytest.mark.parametrize(
    ("change", "signal"),
    [
        ({"reserve": 256}, "load"),
        ({"reserve": -1}, "load"),
        ({"kv_ceiling": 0.0}, "kv_usage"),
        ({"kv_ceiling": 1.01}, "kv_usage"),
        ({"kv_ceiling": math.nan}, "kv_usage"),
        ({"stale_seconds": 3600.0}, "age_seconds"),
        ({"burst_tokens": 1 << 30}, "sync_prompt_tokens"),
        ({"step": replace(LIMITS.step, itl_budget=60.0)}, "step_seconds"),
        ({"step": replace(LIMITS.step, itl_stretch=1e9)}, "step_seconds"),
        ({"floor": 254}, "step_seconds"),
    ],
)
def test_limits_that_a_signal_cannot_reach_or_that_leave_no_room_are_refused_by_its_name(
    change: dict[str, Any], signal: str
) -> None:
    with pytest.raises(SelfTestError, match=f"^{signal}: "):
        prove(replace(LIMITS, **change))


def test_a_floor_below_the_cap_is_left_to_batch_work_and_passes() -> None:
    assert len(prove(replace(LIMITS, floor=LIMITS.cap - 1))) == 8


def test_of_a_static_cap_only_failing_telemetry_is_asked() -> None:
    assert [c.signal for c in prove(replace(LIMITS, static=True))] == ["telemetry", "age_seconds"]


def test_a_law_that_ignores_a_signal_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(state, signals, limits):  # type: ignore[no-untyped-def]
        return decide(state, replace(signals, sync=None), limits)

    decide = selftest.decide
    monkeypatch.setattr(selftest, "decide", forgetful)
    with pytest.raises(SelfTestError, match=r"^sync_prompt_tokens: "):
        prove(LIMITS)


def test_a_law_that_stays_closed_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def sulking(state, signals, limits):  # type: ignore[no-untyped-def]
        after, decision = decide(state, signals, limits)
        sulks = Reason.CLOSED_KV in (state.reason, decision.reason)
        return (replace(after, reason=Reason.CLOSED_KV), replace(decision, allowance=0)) if sulks else (after, decision)

    decide = selftest.decide
    monkeypatch.setattr(selftest, "decide", sulking)
    with pytest.raises(SelfTestError, match=r"^kv_usage: the gate does not open again"):
        prove(LIMITS)


@given(st.integers(3, 512), st.integers(0, 600), st.floats(0.01, 1), st.integers(1, 1 << 19), st.floats(0.001, 1))
def test_limits_that_hold_are_proven_and_others_refused(
    slots: int, reserve: int, kv_ceiling: float, burst: int, budget: float
) -> None:
    step = replace(LIMITS.step, itl_budget=budget)
    limits = replace(
        LIMITS, cap=slots, slots=slots, reserve=reserve, kv_ceiling=kv_ceiling, burst_tokens=burst, step=step
    )
    if reserve >= slots:
        with pytest.raises(SelfTestError):
            prove(limits)
        return
    found = {closing.signal: closing.closes_at for closing in prove(limits)}
    assert found["load"] == slots - reserve
    assert found["kv_usage"] == pytest.approx(kv_ceiling, rel=1e-5)
    assert found["step_seconds"] == pytest.approx(budget, rel=1e-5)
