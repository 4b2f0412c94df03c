"""`SLACKWATER_PROTECT` chooses all step budgets at once, and a single setting wins over it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.environment import child_environment
from app.headroom.gate_rules import HeadroomLimits
from app.headroom.selftest import prove
from app.protect import BUDGETS, DEFAULT, Protect
from app.settings import Settings
from workers.engine.step_budget import StepBudget

seconds = st.floats(0, 0.5)
LEVELS: tuple[Protect, ...] = ("strict", "balanced", "harvest")


def allowed(level: Protect, decode: float, alone: float, shortest: float, urgency: float, *, sync: bool) -> float:
    return StepBudget.of(Settings(protect=level)).allowed(decode, alone, shortest, urgency, sync=sync)


@pytest.mark.parametrize("level", BUDGETS)
def test_a_level_sets_every_budget(monkeypatch: pytest.MonkeyPatch, level: Protect) -> None:
    monkeypatch.setenv("SLACKWATER_PROTECT", level)
    chosen = Settings()
    assert {name: getattr(chosen, name) for name in BUDGETS[level]} == BUDGETS[level]


def test_a_single_setting_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACKWATER_PROTECT", "strict")
    monkeypatch.setenv("SLACKWATER_ITL_BUDGET_MS", "17")
    chosen = Settings(idle_step_ms=90)
    assert (chosen.itl_budget_ms, chosen.idle_step_ms) == (17, 90)
    assert chosen.idle_stretch == BUDGETS["strict"]["idle_stretch"]


def test_parts_of_the_installation_get_the_level_and_only_what_was_set() -> None:
    environment = child_environment(Settings(protect="harvest", itl_stretch=1.2), {})
    named = {name: value for name, value in environment.items() if name.removeprefix("SLACKWATER_").lower() in NAMES}
    assert named == {"SLACKWATER_PROTECT": "harvest", "SLACKWATER_ITL_STRETCH": "1.2"}


@pytest.mark.parametrize("level", BUDGETS)
def test_the_gate_can_close_and_open_at_every_level(level: Protect) -> None:
    closing = {each.signal: each.closes_at for each in prove(HeadroomLimits.of(Settings(protect=level), 32))}
    assert closing["step_seconds"] > 0


NAMES = {"protect", *BUDGETS[DEFAULT]}


def test_another_word_is_refused_with_the_three_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACKWATER_PROTECT", "paranoid")
    with pytest.raises(ValidationError, match="'strict', 'balanced' or 'harvest'"):
        Settings()


def test_the_default_is_what_the_fields_say() -> None:
    assert {name: Settings.model_fields[name].default for name in BUDGETS[DEFAULT]} == BUDGETS[DEFAULT]


@given(seconds, seconds, seconds, st.floats(0, 1), st.booleans())
def test_a_stricter_level_never_allows_a_longer_step(
    decode: float, more: float, shortest: float, urgency: float, sync: bool
) -> None:
    steps = [allowed(level, decode, decode + more, shortest, urgency, sync=sync) for level in LEVELS]
    assert steps == sorted(steps)


@given(st.floats(1e-3, 0.5), st.floats(0, 1))
def test_strict_allows_a_twelfth_beside_the_tokens_of_callers_on_every_machine(decode: float, urgency: float) -> None:
    assert allowed("strict", decode, decode, decode, urgency, sync=True) == pytest.approx(1.08 * decode)
