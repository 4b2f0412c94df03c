"""How many batch requests a worker keeps in an engine whose own scheduler shares the steps."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from app import clock
from app.headroom.controller import Decision
from app.headroom.signals import Signals
from app.settings import Settings
from tests.headroom.support import LIMITS, look
from workers.engine.control_page import Commands, Report, Weights
from workers.engine.page_folder import NO_PAGE, SEVERAL, TRIPPED, UNSUPPORTED, OwnPage
from workers.engine.step_model import WARM
from workers.gpu import engine_pages
from workers.gpu.engine_pages import combined
from workers.gpu.harvest_control import HarvestControl

ENGINE, OTHER = b"one engi", b"another "
WEIGHTS = Weights(0.01, 1e-5, 1e-8, 0.0, 128.0)


class Bench:
    """A worker's side and an engine's side of the pages in one folder."""

    def __init__(self, settings: Settings) -> None:
        self.harvest = HarvestControl.attached(settings)
        self.harvest.open()
        self.folder = Path(settings.page_dir)
        self.ranks = [self.rank(0)]

    def rank(self, number: int, engine: bytes = ENGINE) -> OwnPage:
        """The page of another engine-core process."""
        return OwnPage(self.folder, number, engine)

    def close(self) -> None:
        """Both sides."""
        for own in self.ranks:
            own.close()
        self.harvest.close()

    def tell(self, rank: int = 0, **state: Any) -> None:
        known = {"steps": 1, "trusted": True, "model_error": 0.05, "model_samples": 1000, "at": clock.monotonic()}
        self.ranks[rank].page.publish(Report(**known | state), WEIGHTS)

    def ruling(self, signals: Signals) -> Decision | None:
        self.harvest.command(0.0)
        return self.harvest.decide(signals, LIMITS)

    def rule(self, signals: Signals) -> tuple[int, str, str]:
        ruling = self.ruling(signals)
        assert ruling is not None
        return ruling.allowance, ruling.reason, ruling.signal


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(engine_pages, "LOOK_SECONDS", 0.0)
    bench = Bench(Settings(data_dir=tmp_path, page_dir=str(tmp_path / "pages")))
    yield bench
    bench.close()


def later(**shown: Any) -> Signals:
    return look(clock.monotonic(), **shown)


def test_before_its_first_report_the_controller_outside_rules(bench: Bench) -> None:
    assert bench.ruling(later()) is None


def test_batch_may_take_every_slot_that_synchronous_requests_and_the_reserve_leave(bench: Bench) -> None:
    bench.tell(sync_running=20, batch_running=4)
    assert bench.rule(later(own=4, running=24)) == (10, "harvest", "step_seconds")


def test_where_nobody_calls_for_a_while_that_is_what_is_said_of_its_steps(bench: Bench) -> None:
    bench.tell(allowed_seconds=13.0)
    began = clock.monotonic()
    assert bench.rule(look(began))[2] == "step_seconds"
    soon = bench.ruling(look(began + 27))
    assert soon is not None
    assert (soon.signal, soon.value) == ("quiet_seconds", 20.0)
    ruling = bench.ruling(look(began + 250))
    assert ruling is not None
    assert (ruling.signal, ruling.value, ruling.threshold) == ("quiet_seconds", 240.0, 13.0)
    bench.tell(sync_running=1, allowed_seconds=0.1)
    assert bench.rule(look(began + 251, running=1))[2] == "step_seconds"


def test_a_sleeping_engine_gets_no_batch_work_and_is_not_at_fault(bench: Bench) -> None:
    bench.tell(batch_running=2)
    signals = later(own=2, running=2)
    assert signals.scrape is not None
    assert signals.scrape.gauges is not None
    scrape = replace(signals.scrape, gauges=replace(signals.scrape.gauges, asleep=True))
    asleep = [bench.ruling(replace(signals, scrape=scrape, now=signals.now + later)) for later in (0.0, 60.0)]
    assert [(d.reason, d.surplus) for d in asleep if d] == [("closed_asleep", 0)] * 2


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


def test_an_engines_report_is_forgotten_when_it_dies_and_the_next_one_starts_with_what_it_had_learnt(
    bench: Bench,
) -> None:
    bench.tell(batch_waiting=9, tripped=True, faults=1)
    assert bench.rule(later(own=1))[1] == "plugin_tripped"
    bench.ranks.pop().close()
    assert bench.ruling(later(own=1)) is None
    bench.ranks.append(bench.rank(0))
    assert bench.ranks[0].prior == WEIGHTS
    assert bench.ruling(later(own=1)) is None
    bench.tell()
    assert bench.rule(later(own=1))[1] == "harvest"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"model_samples": 5, "model_error": 1.0}, ("closed_learning", "model_samples", 5, WARM)),
        ({"model_error": 0.5}, ("closed_model_error", "model_error", 0.5, 0.3)),
    ],
)
def test_batch_that_stands_aside_because_its_model_is_poor_gets_no_more_and_says_which_number_is_not_met(
    bench: Bench, state: dict[str, float], said: tuple[str, str, float, float]
) -> None:
    bench.tell(sync_running=1, trusted=False, **state)
    ruling = bench.ruling(later(own=1, running=2))
    assert ruling is not None
    assert (ruling.allowance, ruling.surplus) == (0, 0)
    assert (ruling.reason, ruling.signal, ruling.value, ruling.threshold) == said


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
    assert (ruling.allowance, ruling.reason, ruling.surplus, ruling.all_yield) == (0, "plugin_tripped", 3, True)
    assert bench.ruling(later()) is None


def test_after_a_fault_both_sides_agree_that_vllm_schedules_alone_until_the_engine_restarts(bench: Bench) -> None:
    bench.tell(tripped=True, faults=1, batch_running=3)
    assert bench.rule(later(own=3, running=3))[1] == "plugin_tripped"
    assert commands_of(bench.ranks[0]).harvest  # as long as its scheduler has batch work to take out
    bench.tell(tripped=True, faults=1)
    assert bench.ruling(later()) is None
    assert bench.harvest.obstacle == TRIPPED
    assert bench.ruling(later(own=2, running=2)) is None  # L1 may send some again, and they run
    assert not commands_of(bench.ranks[0]).harvest
    assert not bench.harvest.renew
    bench.tell()
    assert bench.rule(later())[1] == "harvest"
    bench.harvest.command(0.0)
    assert commands_of(bench.ranks[0]).harvest
    assert bench.harvest.obstacle is None


def test_a_managed_engine_is_started_anew_after_a_fault_once_it_has_no_requests_or_else_stays(
    tmp_path: Path,
) -> None:
    harvest = HarvestControl.of(Settings(data_dir=tmp_path))
    harvest.open()
    [folder] = harvest.environment.values()
    own = OwnPage(Path(folder), 0, ENGINE)
    began = clock.monotonic()

    def reason(seconds: float, **load: int) -> str | None:
        own.page.publish(Report(steps=1, tripped=True, faults=1, at=began + seconds - 0.1), WEIGHTS)
        harvest.command(0.0)
        ruling = harvest.decide(look(began + seconds, **load), LIMITS)
        return ruling and ruling.reason

    assert (reason(0, own=1, running=2), harvest.renew) == ("plugin_tripped", False)
    assert (reason(1, running=1), harvest.renew) == ("plugin_tripped", False)
    assert (reason(2), harvest.renew) == ("plugin_tripped", True)
    assert (reason(3, running=1), harvest.renew) == ("plugin_tripped", False)
    assert (reason(61, running=1), harvest.renew) == (None, False)
    own.close()
    harvest.close()


def test_an_engine_that_stands_still_with_others_requests_in_it_stays_closed_when_ours_have_left(bench: Bench) -> None:
    bench.tell(steps=7, sync_running=2)
    now = clock.monotonic()
    sights = [look(now, own=3, running=5), look(now + 6, own=3, running=5), look(now + 7, own=0, running=2)]
    rulings = [bench.ruling(signals) for signals in sights]
    assert [ruling.reason for ruling in rulings if ruling] == ["harvest", "closed_stale", "closed_stale"]


# Attached engines, and several ranks


def commands_of(own: OwnPage) -> Commands:
    commands = own.page.commands()
    assert commands is not None
    return commands


def test_without_a_folder_or_with_the_harvest_off_an_attached_engine_has_no_pages(tmp_path: Path) -> None:
    for settings in (Settings(), Settings(page_dir=str(tmp_path), harvest=False)):
        harvest = HarvestControl.attached(settings)
        harvest.open()
        harvest.command(0.0)
        assert (harvest.report, harvest.obstacle) == (None, None)


def test_a_worker_that_does_not_control_the_engine_commands_nothing(bench: Bench) -> None:
    standby = HarvestControl.attached(Settings(page_dir=str(bench.folder)))
    standby.command(0.5)
    standby.close()
    assert bench.ranks[0].page.commands() is None


def test_every_rank_gets_the_commands_and_the_decision_is_about_all_of_them(bench: Bench) -> None:
    bench.ranks.append(bench.rank(1))
    bench.tell(sync_running=6, batch_running=2)
    bench.tell(1, sync_running=14, batch_running=2)
    assert bench.rule(later(own=4, running=24)) == (10, "harvest", "step_seconds")
    for own in bench.ranks:
        assert commands_of(own).heartbeat > 0
    bench.tell(1, tripped=True, faults=1)
    assert bench.rule(later(own=4, running=24))[1] == "plugin_tripped"


def test_a_rank_that_does_not_report_leaves_the_decision_to_the_controller_outside(bench: Bench) -> None:
    bench.ranks.append(bench.rank(1))
    bench.tell()
    assert bench.ruling(later()) is None
    bench.tell(1)
    assert bench.rule(later())[1] == "harvest"


def test_the_report_of_all_ranks_has_their_sums_and_the_worst_of_the_rest() -> None:
    one = Report(at=5.0, steps=3, trusted=True, sync_running=2, kv_usage=0.9, model_error=0.1, model_samples=50)
    two = Report(at=4.0, steps=4, silent=True, sync_running=1, batch_frozen=3, step_seconds=0.2, allowed_seconds=0.1)
    found = combined([one, two])
    assert (found.at, found.steps, found.sync_running, found.batch_frozen) == (5.0, 7, 3, 3)
    assert (found.trusted, found.silent, found.tripped, found.supported) == (False, True, False, True)
    assert (found.kv_usage, found.model_error, found.model_samples) == (0.9, 1.0, 0)
    assert (found.step_seconds, found.allowed_seconds) == (0.2, 0.1)


def test_why_the_scheduler_does_not_rule_is_said_once(bench: Bench) -> None:
    def obstacle() -> str | None:
        for _ in range(3):
            bench.harvest.command(0.0)
        return bench.harvest.obstacle

    with capture_logs() as logged:
        assert obstacle() is None
        bench.tell(supported=False)
        assert obstacle() == UNSUPPORTED
        bench.tell()
        assert obstacle() is None
        bench.ranks.append(bench.rank(1, OTHER))
        assert obstacle() == SEVERAL
        bench.ranks.pop().close()
        assert obstacle() is None
        bench.ranks[0].close()
        assert obstacle() == NO_PAGE
    told = [(line["event"], line.get("reason")) for line in logged]
    inside, outside = "harvest.inside", "harvest.outside"
    changes = [(outside, UNSUPPORTED), (inside, None), (outside, SEVERAL), (inside, None), (outside, NO_PAGE)]
    assert told == [(inside, None), *changes]


def test_an_engine_that_can_no_longer_be_commanded_or_whose_worker_leaves_schedules_alone(bench: Bench) -> None:
    bench.harvest.command(0.0)
    assert commands_of(bench.ranks[0]).harvest
    second = bench.rank(0, OTHER)
    bench.harvest.command(0.0)
    assert not commands_of(bench.ranks[0]).harvest
    assert second.page.commands() is None
    second.close()
    bench.harvest.command(0.0)
    assert commands_of(bench.ranks[0]).harvest
    bench.harvest.close()
    assert not commands_of(bench.ranks[0]).harvest
