"""A scheduler with a page: without a worker, with one, with one that falls silent, and beside other ranks."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app import clock
from testing.bare_scheduler import SYNC
from tests.harvest.support import COMMANDS, Bench
from workers.engine.control_page import UNKNOWN, ControlPage, Report, Weights
from workers.engine.page_folder import VARIABLE, OwnPage, PageFolder
from workers.engine.scheduler import HarvestScheduler
from workers.engine.worker_link import ALONE_SECONDS, FRESH_SECONDS, WorkerLink

pytestmark = pytest.mark.slow


class Linked(Bench):
    """A scheduler with a page in a folder, and the worker's side of it. Its clock is the machine's, plus `ahead`."""

    def __init__(self, folder: Path, **engine: Any) -> None:
        super().__init__(HarvestScheduler, None, max_seqs=4, **engine)
        self.ahead = 0.0
        self.scheduler.clock = lambda: clock.monotonic() + self.ahead
        self.folder = PageFolder(folder)
        self.folder.look()

    @property
    def page(self) -> ControlPage:
        """The page, as the worker sees it."""
        [page] = self.folder.pages
        return page

    def command(self, **changes: Any) -> None:
        """A worker's heartbeat."""
        self.page.command(replace(COMMANDS, **changes))

    def seen(self) -> Report:
        """The report, as the worker reads it."""
        report = self.page.report()
        assert report is not None
        return report


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "pages"))
    return tmp_path / "pages"


@pytest.fixture
def bench(folder: Path) -> Iterator[Linked]:
    bench = Linked(folder)
    yield bench
    bench.folder.close()
    bench.scheduler._link.close()


def test_before_its_first_step_the_page_says_that_this_vllm_is_supported(bench: Linked) -> None:
    assert bench.seen() == Report(slots=4)


def test_without_a_worker_vllm_schedules_alone(bench: Linked) -> None:
    bench.crowd(4, steps=5)
    assert (bench.seen().batch_running, bench.seen().planning) == (4, False)
    bench.add("s", 100, 10, SYNC)
    assert bench.steps_until("s") > 200


def test_a_worker_that_comes_later_commands_the_steps(bench: Linked) -> None:
    bench.crowd(4, steps=5)
    bench.command()
    bench.step()
    assert bench.seen().planning
    bench.add("s", 100, 10, SYNC)
    assert bench.steps_until("s") < 3


def test_a_silent_worker_sheds_batch_and_a_heard_one_resumes_it(bench: Linked) -> None:
    bench.command()
    bench.crowd(6)
    assert bench.seen().batch_running == 4
    bench.ahead = 3
    for _ in range(4):
        bench.step()
        assert not any(bench.flight[-1].num_scheduled_tokens)
    assert bench.seen().silent
    bench.add("s", 100, 10, SYNC)
    assert bench.steps_until("s") == 0
    while bench.scheduler.has_unfinished_requests():
        bench.ahead = 0
        bench.command()
        bench.step()
    assert bench.tokens == {f"b{i}": 300 for i in range(6)} | {"s": 10}


def test_batch_of_others_is_not_frozen_for_ever_by_a_worker_that_is_gone(bench: Linked) -> None:
    bench.command()
    bench.crowd(3)
    bench.ahead = 3
    bench.step()
    assert bench.seen().silent
    bench.ahead = ALONE_SECONDS + 1
    bench.step()
    bench.step()
    report = bench.seen()
    assert (report.silent, report.planning, report.batch_frozen) == (False, False, 0)
    assert bench.flight[-1].num_scheduled_tokens.keys() == {"b0", "b1", "b2"}
    bench.ahead = 0
    bench.command()
    bench.step()
    assert bench.seen().planning


def test_a_worker_that_leaves_lets_vllm_schedule_alone_at_once(bench: Linked) -> None:
    bench.command()
    bench.crowd(3)
    bench.command(harvest=False)
    bench.ahead = 3
    bench.step()
    assert (bench.seen().silent, bench.seen().planning) == (False, False)


def test_a_page_that_is_removed_is_made_again_and_found(bench: Linked) -> None:
    bench.command()
    bench.crowd(2)
    [path] = bench.folder.folder.iterdir()
    path.unlink()
    bench.ahead = 1.5
    bench.step()
    bench.folder.look()
    bench.ahead = 0
    bench.command()
    bench.step()
    assert bench.seen().planning
    assert not path.exists()


def test_a_page_that_is_cut_short_ends_no_process_and_is_made_again(folder: Path) -> None:
    """Whoever touches the mapping of a file without a byte gets SIGBUS."""
    link, worker = WorkerLink(folder), PageFolder(folder)
    worker.look()
    [page] = worker.pages
    page.command(COMMANDS)
    assert link.commands(0.0) is not None
    [path] = folder.iterdir()
    os.truncate(path, 0)
    page.command(COMMANDS)
    assert (page.report(), page.learnt()) == (None, None)
    link.commands(0.5)
    link.publish(Report(steps=1), Weights())
    worker.look()
    assert worker.problem == UNKNOWN
    link.commands(2.0)
    link.publish(Report(steps=2), Weights())
    worker.look()
    assert [page.report() for page in worker.pages] == [Report(steps=2)]
    assert not path.exists()
    worker.close()
    link.close()


def test_an_engine_that_vllm_schedules_alone_survives_a_page_that_fails(
    bench: Linked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(bench.scheduler._link, "publish", broken)
    bench.scheduler.report.supported = False
    bench.crowd(2, steps=3)
    assert bench.tokens["b0"] > 0


def test_a_folder_that_is_removed_changes_nothing_but_the_worker_is_silent(bench: Linked) -> None:
    bench.command()
    bench.crowd(2)
    shutil.rmtree(bench.folder.folder)
    bench.folder.folder.write_text("not a folder")
    bench.ahead = 3
    bench.step()
    assert (bench.scheduler.report.silent, bench.scheduler.report.tripped) == (True, False)


def test_a_fault_in_reading_the_page_does_not_kill_the_engine(bench: Linked, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.command()
    bench.crowd(2)

    def broken(now: float) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(bench.scheduler._link, "commands", broken)
    bench.step()
    assert (bench.seen().tripped, bench.seen().faults) == (True, 1)


def test_the_page_has_what_the_last_step_was(bench: Linked) -> None:
    bench.command()
    bench.crowd(3, steps=6)
    report, learnt = bench.seen(), bench.page.learnt()
    assert (report.batch_running, report.sync_running) == (3, 0)
    assert report.batch_tokens > 300
    assert learnt is not None
    assert learnt.knee > 0


def test_the_next_engine_starts_with_the_weights_of_the_last(folder: Path) -> None:
    last = OwnPage(folder, 0, bytes(8))
    last.page.publish(Report(), Weights(0.01, 1e-5, 1e-8, 0.0, 96.0))
    last.close()
    bench = Linked(folder)
    assert bench.scheduler.model.weights == pytest.approx((0.01, 1e-5, 1e-8, 0.0, 96.0))
    bench.folder.close()
    bench.scheduler._link.close()


def test_an_engine_without_a_folder_or_with_one_that_it_cannot_use_runs_without_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert Bench(HarvestScheduler, None).scheduler._link is None
    monkeypatch.setenv(VARIABLE, str(tmp_path / "missing" / "pages"))
    bench = Bench(HarvestScheduler, None, max_seqs=4)
    assert bench.scheduler._link is None
    bench.crowd(2, steps=3)


# Ranks


def configuration(experts: bool, ranks: int, rank: int = 0, name: str = "ab12c") -> Any:
    """What a scheduler reads of vLLM's configuration."""
    parallel = SimpleNamespace(data_parallel_size=ranks, data_parallel_index=rank)
    return SimpleNamespace(parallel_config=parallel, model_config=SimpleNamespace(is_moe=experts), instance_id=name)


@pytest.mark.parametrize(("experts", "ranks", "lockstep"), [(True, 2, True), (True, 1, False), (False, 2, False)])
def test_only_ranks_of_a_model_with_experts_run_in_lockstep(
    folder: Path, experts: bool, ranks: int, lockstep: bool
) -> None:
    first = WorkerLink.of_environment(configuration(experts, ranks))
    second = WorkerLink.of_environment(configuration(experts, ranks, 1, "ab12c_dp1"))
    assert first is not None
    assert second is not None
    second.publish(Report(at=100.0, sync_running=1), Weights())
    assert first.sync_elsewhere(100.5) == lockstep
    for link in (first, second):
        link.close()


def test_what_another_rank_has_said_counts_while_it_is_fresh(folder: Path) -> None:
    own, other = (WorkerLink(folder, rank, b"one engi", lockstep=True) for rank in (0, 1))
    assert not own.sync_elsewhere(100.0)
    other.publish(Report(at=100.0, sync_waiting=1), Weights())
    assert own.sync_elsewhere(102.0 - 1.1)  # the next look for other ranks
    assert not own.sync_elsewhere(100.0 + FRESH_SECONDS)
    other.publish(Report(at=100.0, sync_waiting=1, step_seconds=2.0), Weights())
    assert own.sync_elsewhere(107.0)  # a step takes two seconds there
    other.publish(Report(at=110.0, batch_running=4), Weights())
    assert not own.sync_elsewhere(110.1)
    own.publish(Report(at=110.0, sync_running=4), Weights())
    assert not own.sync_elsewhere(110.2)  # its own are not elsewhere
    for link in (own, other):
        link.close()


def test_a_rank_without_synchronous_requests_keeps_the_budget_of_another_that_has_some(bench: Linked) -> None:
    """In lockstep its step makes theirs longer."""
    engine = bench.page.engine
    bench.scheduler._link._lockstep = True
    other = OwnPage(bench.folder.folder, 1, engine)
    bench.command(idle_step=0.5, itl_budget=0.02)
    bench.crowd(3)
    assert bench.seen().allowed_seconds >= 0.5
    bench.scheduler._link._looked_at = float("-inf")
    other.page.publish(Report(at=clock.monotonic(), sync_running=2), Weights())
    bench.step()
    assert bench.seen().allowed_seconds < 0.1
    other.close()
