"""The control page carries both ways between processes, whole or not at all; silence sheds."""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from app import clock
from testing.bare_scheduler import SYNC
from tests.harvest.support import COMMANDS, Bench
from workers.engine import control_page
from workers.engine.control_page import VARIABLE, PageGuest, PageOwner, Report, Weights
from workers.engine.scheduler import HarvestScheduler

GUEST = """
import sys
from workers.engine.control_page import PageGuest, Report, Weights
page = PageGuest.of_environment(3)
commands = page.commands()
assert page.prior() is None
page.publish(Report(steps=7, tripped=True, step_seconds=commands.itl_budget), Weights(1, 2, 3, 4, 5))
"""


def test_commands_and_reports_cross_between_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = PageOwner(tmp_path / "page", 3)
    assert owner.report() is None
    assert owner.learnt() is None
    before = clock.monotonic()
    owner.command(replace(COMMANDS, itl_budget=0.031, chunk=99))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "page"))
    subprocess.run([sys.executable, "-c", GUEST], check=True, timeout=60)
    assert owner.report() == Report(steps=7, tripped=True, step_seconds=0.031)
    assert owner.learnt() == Weights(1, 2, 3, 4, 5)
    owner.renew()
    assert (owner.report(), owner.learnt()) == (None, None)
    guest = PageGuest(owner.path)
    assert guest.prior() == Weights(1, 2, 3, 4, 5)
    commands = guest.commands()
    assert commands is not None
    assert commands.chunk == 99
    assert before <= commands.heartbeat <= clock.monotonic()
    owner.close()
    assert not (tmp_path / "page.3").exists()


def test_a_half_written_record_is_not_read(tmp_path: Path) -> None:
    owner = PageOwner(tmp_path / "page")
    owner.command(COMMANDS)
    guest = PageGuest(owner.path)
    owner._map[3] ^= 0xFF
    assert guest.commands() is None


def test_a_record_of_another_layout_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = PageOwner(tmp_path / "page")
    guest = PageGuest(owner.path)
    owner.command(COMMANDS)
    assert guest.commands() is not None
    monkeypatch.setattr(control_page, "LAYOUT", control_page.LAYOUT + 1)
    assert guest.commands() is None


def test_the_records_do_not_overlap(tmp_path: Path) -> None:
    owner = PageOwner(tmp_path / "page")
    records = [owner._commands, owner._prior, owner._report, owner._learnt]
    for one, two in pairwise(records):
        assert one._whole.stop <= two._whole.start
    assert records[-1]._whole.stop <= len(owner._map)


@pytest.fixture
def commanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[PageOwner, Any]:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "page"))
    owner = PageOwner(tmp_path / "page")
    owner.command(COMMANDS)
    bench = Bench(HarvestScheduler, max_seqs=4)
    bench.now = clock.monotonic()
    return owner, bench


def test_a_silent_worker_sheds_batch_and_a_heard_one_resumes_it(commanded: tuple[PageOwner, Bench]) -> None:
    owner, bench = commanded
    bench.crowd(6)
    assert bench.scheduler.report.batch_running == 4
    bench.now += 3
    for _ in range(4):
        bench.step()
        assert not any(bench.flight[-1].num_scheduled_tokens)
    assert bench.scheduler.report.silent
    bench.add("s", 100, 10, SYNC)
    assert bench.steps_until("s") == 0
    bench.now = clock.monotonic()
    owner.command(COMMANDS)
    while bench.scheduler.has_unfinished_requests():
        bench.now = clock.monotonic()
        owner.command(COMMANDS)
        bench.step()
    assert bench.tokens == {f"b{i}": 300 for i in range(6)} | {"s": 10}


def test_the_owner_reads_what_the_last_step_was(commanded: tuple[PageOwner, Bench]) -> None:
    owner, bench = commanded
    bench.crowd(3, steps=6)
    report, learnt = owner.report(), owner.learnt()
    assert report is not None
    assert (report.batch_running, report.sync_running) == (3, 0)
    assert report.batch_tokens > 300
    assert learnt is not None
    assert learnt.knee > 0


def test_without_a_page_vllm_schedules_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    bench = Bench(HarvestScheduler, None, max_seqs=4)
    bench.crowd(4, steps=5)
    bench.add("s", 100, 10, SYNC)
    assert bench.steps_until("s") > 200
