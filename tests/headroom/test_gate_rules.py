"""A new signal needs one entry of the table: the controller, the scheduler's worker, the self-test and the messages follow it."""

from dataclasses import replace
from pathlib import Path

import pytest

from app import clock
from app.headroom import gate_rules, selftest
from app.headroom.gate_rules import ClosingSignal, Reason
from app.headroom.selftest import SelfTestError, prove
from app.settings import Settings
from tests.headroom.support import LIMITS, look
from tests.headroom.support import law as decision_of
from workers.engine.control_page import Report, Weights
from workers.engine.page_folder import VARIABLE, OwnPage
from workers.gpu.harvest_control import HarvestControl

PREEMPTIONS = ClosingSignal(
    name="preemptions",
    reason=Reason.CLOSED_KV,
    meaning="takes memory away from running requests",
    comparison="{value} requests preempted, limit {threshold}",
    value=lambda gauges: gauges.preemptions,
    limit=lambda limits: 3,
    most=100,
    whole=True,
    shown=lambda gauges, value: replace(gauges, preemptions=int(value)),
)


@pytest.fixture
def with_preemptions(monkeypatch: pytest.MonkeyPatch) -> None:
    signals = (*gate_rules.CLOSING_SIGNALS, PREEMPTIONS)
    monkeypatch.setattr(gate_rules, "CLOSING_SIGNALS", signals)
    monkeypatch.setattr(selftest, "CLOSING_SIGNALS", signals)


def preempting(count: int, now: float = 10.0):  # type: ignore[no-untyped-def]
    seen = look(now)
    return replace(seen, scrape=replace(seen.scrape, gauges=replace(seen.scrape.gauges, preemptions=count)))  # type: ignore[type-var, union-attr]


@pytest.mark.usefixtures("with_preemptions")
def test_the_controller_closes_at_the_limit_of_a_signal_in_the_table() -> None:
    assert decision_of(preempting(2)).allowance > 0
    closed = decision_of(preempting(3))
    assert (closed.allowance, closed.reason, closed.signal, closed.threshold) == (0, "closed_kv", "preemptions", 3)


@pytest.mark.usefixtures("with_preemptions")
def test_it_closes_an_engine_whose_own_scheduler_shares_the_steps(tmp_path: Path) -> None:
    control = HarvestControl.of(Settings(data_dir=tmp_path))
    control.open()
    own, now = OwnPage(Path(control.environment[VARIABLE]), 0, b"one engi"), clock.monotonic()
    own.page.publish(Report(steps=1, trusted=True, model_samples=1000, at=now), Weights())
    control.command(0.0)
    found = [control.decide(preempting(count, now), LIMITS) for count in (2, 3)]
    assert [decision.signal for decision in found if decision] == ["step_seconds", "preemptions"]
    assert [decision.allowance > 0 for decision in found if decision] == [True, False]
    own.close()
    control.close()


@pytest.mark.usefixtures("with_preemptions")
def test_the_self_test_finds_where_it_closes() -> None:
    assert ("preemptions", 3) in [(closing.signal, closing.closes_at) for closing in prove(LIMITS)]


def test_the_self_test_refuses_a_signal_whose_limit_is_never_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    unreachable = replace(PREEMPTIONS, limit=lambda limits: 1000)
    for module in (gate_rules, selftest):
        monkeypatch.setattr(module, "CLOSING_SIGNALS", (unreachable,))
    with pytest.raises(SelfTestError, match=r"^preemptions: "):
        prove(LIMITS)
