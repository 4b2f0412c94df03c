"""How many batch requests a worker keeps in an engine whose own scheduler shares the steps."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app import clock
from app.headroom.controller import Decision
from app.headroom.signals import Signals
from app.headroom.step_model import WARM
from app.settings import Settings
from tests.headroom.support import LIMITS, look
from workers.engine.control_page import PageGuest, Report, Weights
from workers.gpu.harvest_control import HarvestControl

WEIGHTS = Weights(0.01, 1e-5, 1e-8, 0.0, 128.0)


class Bench:
    """A worker's side and an engine's side of one page."""

    def __init__(self, settings: Settings) -> None:
        self.harvest = HarvestControl.of(settings)
        self.harvest.engine_starts()
        assert self.harvest._page is not None
        self.guest = PageGuest(self.harvest._page.path)

    def tell(self, **state: Any) -> None:
        known = {"steps": 1, "trusted": True, "model_error": 0.05, "model_samples": 1000, "at": clock.monotonic()}
        self.guest.publish(Report(**known | state), WEIGHTS)

    def ruling(self, signals: Signals) -> Decision | None:
        self.harvest.command(0.0)
        return self.harvest.decide(signals, LIMITS)

    def rule(self, signals: Signals) -> tuple[int, str, str]:
        ruling = self.ruling(signals)
        assert ruling is not None
        return ruling.allowance, ruling.reason, ruling.signal


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(Settings(data_dir=tmp_path))
    yield bench
    bench.guest.close()
    bench.harvest.close()


def later(**shown: Any) -> Signals:
    return look(clock.monotonic(), **shown)


def test_before_its_first_report_the_controller_outside_rules(bench: Bench) -> None:
    assert bench.ruling(later()) is None


def test_batch_may_take_every_slot_that_synchronous_requests_and_the_reserve_leave(bench: Bench) -> None:
    bench.tell(sync_running=20, batch_running=4)
    assert bench.rule(later(own=4, running=24)) == (10, "harvest", "step_seconds")


def test_what_waits_in_the_engine_is_not_joined_by_more(bench: Bench) -> None:
    bench.tell(batch_running=3, batch_waiting=2)
    assert bench.rule(later(own=5, running=3, waiting=2))[0] == 5


@pytest.mark.parametrize(
    "left",
    [{"batch_waiting": 9, "batch_running": 12}, {"sync_waiting": 3, "sync_running": 32}, {"kv_usage": 0.99}],
)
def test_a_report_of_requests_that_have_since_gone_does_not_keep_the_gate_closed(
    bench: Bench, left: dict[str, float]
) -> None:
    """An engine without requests takes no step, so its scheduler never says that they are gone; a scrape does."""
    bench.tell(**left)
    assert bench.rule(later()) == (16, "harvest", "step_seconds")


def test_a_scrape_older_than_the_report_says_nothing_about_it(bench: Bench) -> None:
    signals = later()
    bench.tell(sync_waiting=3, sync_running=32, at=signals.now + 1)
    assert bench.rule(signals)[:2] == (0, "closed_sync_waiting")


def test_an_engines_report_is_forgotten_when_the_next_one_starts_but_not_what_it_had_learnt(bench: Bench) -> None:
    bench.tell(batch_waiting=9, tripped=True, faults=1)
    assert bench.rule(later(own=1))[1] == "plugin_tripped"
    bench.harvest.engine_starts()
    assert bench.ruling(later(own=1)) is None
    assert bench.guest.prior() == WEIGHTS


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"model_samples": 5, "model_error": 1.0}, ("model_samples", 5, WARM)),
        ({"model_error": 0.5}, ("model_error", 0.5, 0.3)),
    ],
)
def test_batch_that_stands_aside_because_its_model_is_poor_says_which_number_is_not_met(
    bench: Bench, state: dict[str, float], said: tuple[str, float, float]
) -> None:
    bench.tell(sync_running=1, trusted=False, **state)
    ruling = bench.ruling(later(own=1, running=2))
    assert ruling is not None
    assert (ruling.reason, ruling.signal, ruling.value, ruling.threshold) == ("closed_model_error", *said)


def test_a_scheduler_that_takes_no_step_with_batch_in_it_closes_the_gate_and_is_emptied(bench: Bench) -> None:
    bench.tell(steps=7)
    now = clock.monotonic()
    rulings = [bench.ruling(look(now + seconds, own=3, running=3)) for seconds in (0.0, 1.0, 2.0, 6.0)]
    found = [(ruling.reason, ruling.surplus) for ruling in rulings if ruling is not None]
    assert found == [("harvest", 0), ("harvest", 0), ("closed_stale", 0), ("closed_stale", 3)]


def test_a_fault_in_the_scheduler_takes_batch_out_and_then_the_controller_outside_rules(bench: Bench) -> None:
    bench.tell(tripped=True, faults=1, batch_running=3)
    ruling = bench.ruling(later(own=3, running=3))
    assert ruling is not None
    assert (ruling.allowance, ruling.reason, ruling.surplus) == (0, "plugin_tripped", 3)
    assert bench.ruling(later()) is None


def test_an_engine_that_stands_still_with_others_requests_in_it_stays_closed_when_ours_have_left(bench: Bench) -> None:
    bench.tell(steps=7, sync_running=2)
    now = clock.monotonic()
    sights = [look(now, own=3, running=5), look(now + 6, own=3, running=5), look(now + 7, own=0, running=2)]
    rulings = [bench.ruling(signals) for signals in sights]
    assert [ruling.reason for ruling in rulings if ruling] == ["harvest", "closed_stale", "closed_stale"]
