"""Claims about the checker itself: which violations it finds, and how it reports them."""

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.queue.poison import give_up_message
from app.queue.types import Lease
from app.settings import Settings
from testing.waiting import eventually
from tests.crash import __main__ as command
from tests.crash import money
from tests.crash.engines import DOOMED
from tests.crash.examine import GIVEN_UP
from tests.crash.history import MUST_BE_ZERO, UNSERVED, Arrival, Batch, Cut, Halt, History
from tests.crash.logs import judge_logs, unexpected
from tests.crash.nemesis import Nemesis
from tests.crash.system import HOSTS, MODULES, Part, Small, System
from tests.crash.verdict import Result, Row, _accounts, _arrivals, _deletions

TRACEBACK = ["Traceback (most recent call last):\n", '  File "x.py", line 1, in f\n', "ValueError: no\n"]
WANTED = {
    "seeds",
    "faults",
    "items",
    "lost",
    "duplicated",
    "rerun_after_flush",
    "unaccounted",
    "unexpected_exits",
    "innocent_given_up",
}


def line(**entry: object) -> str:
    return json.dumps(entry) + "\n"


@pytest.fixture
async def system() -> AsyncIterator[System]:
    """One installation at rest."""
    system = Small(History(), seed=1)
    try:
        await system.start()
        yield system
    finally:
        await system.close(keep_logs=False)


async def ended(part: Part) -> None:
    """Wait until the current process of the part has ended and another one runs."""
    before = part.process
    await eventually(lambda: part.process is not before and part.running, part.name)


@pytest.mark.slow
async def test_a_part_that_ends_unexpectedly_is_a_violation(system: System) -> None:
    notifier, steward = system.parts["notifier"], system.parts["steward-0"]
    steward.send(signal.SIGKILL)
    await ended(steward)
    assert system.history.sound
    assert notifier.process
    notifier.process.send_signal(signal.SIGABRT)  # the checker does not know of this signal
    await ended(notifier)
    assert system.history.counts["unexpected_exits"] == 1
    assert steward.process
    steward.ends[steward.process.pid] = {0}  # as after a signal
    steward.process.kill()
    await ended(steward)
    assert system.history.counts["unexpected_exits"] == 2
    assert not system.history.sound


@pytest.mark.slow
async def test_a_reservation_beyond_a_budget_is_a_violation_even_if_it_returns(system: System) -> None:
    await money.judge(system.postgres, system.history)
    assert system.history.sound
    await system.postgres.rows("update budget set reserved = max where tenant_id = 1")
    await system.postgres.rows("update budget set reserved = max + 1 where tenant_id = 1")
    await system.postgres.rows("update budget set reserved = 0")
    await money.judge(system.postgres, system.history)
    assert (system.history.counts["overspent"], system.history.counts["unaccounted"]) == (1, 0)
    await system.postgres.rows("update budget set spent = 1 where tenant_id = 2")
    await money.judge(system.postgres, system.history)
    assert system.history.counts["unaccounted"] == 1


@pytest.mark.slow
async def test_what_is_spent_beyond_the_published_bound_is_a_violation(system: System) -> None:
    await system.postgres.rows("update budget set reserved = 1")
    await system.postgres.rows("update bound set beyond = 10")
    await system.postgres.rows("update budget set reserved = 0, spent = max + 10")
    assert await system.postgres.rows("select text from overspent") == []
    await system.postgres.rows("update budget set spent = max + 11 where tenant_id = 2")
    [(text,)] = await system.postgres.rows("select text from overspent")
    assert text.endswith("bound 10")


def test_every_traceback_and_every_unknown_error_is_unexpected() -> None:
    lines = [
        line(level="warning", event="database.away", error="server closed the connection"),
        line(level="error", event="storage.full", error="no space"),
        line(level="error", event="consumer: Cannot connect to pgmq: no connection after 5 s. Trying again in 2 s."),
        line(level="critical", event="Couldn't ack '1', reason: away", exception="".join(TRACEBACK).strip()),
        line(level="info", event="started"),
        "some library's word\n",
    ]
    assert list(unexpected(lines)) == []
    told = line(level="error", event="request.failed", exception="".join(TRACEBACK).strip())
    assert list(unexpected([told])) == ["request.failed: ValueError: no"]
    assert list(unexpected([line(level="error", event="engine.died", error="why")])) == ["engine.died: why"]
    assert list(unexpected([lines[0], *TRACEBACK, lines[2], *TRACEBACK])) == ["ValueError: no"] * 2
    assert list(unexpected([*TRACEBACK, *TRACEBACK])) == ["ValueError: no"] * 2


def test_only_a_part_that_was_stopped_may_end_with_requests_open(tmp_path: Path) -> None:
    late = "Cancel 2 running task(s), timeout graceful shutdown exceeded"
    (tmp_path / "api.log").write_text(line(level="error", event=late) + line(level="error", event="engine.died"))
    for stopped, wrong in ((False, 2), (True, 1)):
        history = History()
        if stopped:
            history.fault("SIGSTOP of all of a host", "api, worker-1 12.0 s")
        judge_logs(history, tmp_path)
        assert history.counts["unexpected_exceptions"] == wrong


@pytest.mark.parametrize(
    "raised",
    [
        "raise ExceptionGroup('parts', [ValueError('broken')])",
        "raise ExceptionGroup('parts', [ExceptionGroup('inner', [KeyError('k')]), ValueError('broken')])",
        "raise ValueError('broken')",
    ],
)
def test_what_python_prints_of_an_exception_or_of_a_group_is_one_unexpected_line(raised: str) -> None:
    printed = subprocess.run([sys.executable, "-c", raised], capture_output=True, text=True, check=False).stderr
    lines = [line(event="started"), *printed.splitlines(keepends=True), line(event="started")]
    assert list(unexpected(lines)) == ["ValueError: broken"]
    assert list(unexpected([*TRACEBACK, *lines[1:]])) == ["ValueError: no", "ValueError: broken"]


def test_a_harmless_item_that_is_given_up_is_counted() -> None:
    assert GIVEN_UP in give_up_message(Lease(1, 1, 1, 1, 1, 1, 0, 1, None, 1, 1, attempt=4))
    assert GIVEN_UP in give_up_message(Lease(1, 1, 1, 1, 1, 1, 0, 1, None, 1, 1, deaths=2))
    history, batch = History(), Batch("b", "amber", ["item 0 plain"], "json")
    row = Row(1, "completed", total=1, ok=0, failed=1, final=True, run=1, payloads=1, tokens=0, result_tokens=0)
    _accounts(history, batch, row, {(1, 0): [Result(run=1, ok=False, at=0.0, given_up=True)]})
    assert {name: n for name, n in history.counts.items() if n} == {"innocent_given_up": 1}


def test_an_item_of_a_model_that_no_engine_serves_is_a_violation_at_any_engine() -> None:
    history, batch = History(), Batch("b", "amber", ["b item 0 plain"], "json", model=UNSERVED)
    batch.accept("id")
    history.batches.append(batch)
    _arrivals(history, 0.0, {}, {})
    assert history.sound
    history.arrivals.append(Arrival(history.began, history.began, 1, "engine-0", "b item 0 plain"))
    _arrivals(history, 0.0, {}, {})
    assert {name: n for name, n in history.counts.items() if n} == {"wrong_kind": 1}


def test_only_a_request_sent_in_time_and_held_back_by_a_cut_may_come_after_a_pause() -> None:
    history, batch = History(), Batch("b", "amber", ["b item 0 plain"], "json")
    batch.accept("id")
    history.batches.append(batch)
    zero = history.began
    batch.halts.append(Halt("pause", zero + 18.3))
    history.cuts.append(Cut("engine-0", zero + 16.9, zero + 20.9))
    seen = {
        "held back": (17.3, 21.4, "engine-0"),
        "sent after what a worker may": (20.4, 21.4, "engine-0"),
        "to another engine": (17.3, 21.4, "engine-1"),
        "within the cut": (17.3, 20.8, "engine-0"),
        "long after it": (17.3, 26.0, "engine-0"),
    }
    late = {}
    for case, (sent, at, engine) in seen.items():
        history.counts["ran_when_halted"] = 0
        history.arrivals[:] = [Arrival(zero + at, zero + sent, 1, engine, "b item 0 plain")]
        _arrivals(history, 2.0, {}, {})
        late[case] = history.counts["ran_when_halted"]
    assert late == {case: case != "held back" for case in seen}


def test_each_part_is_on_one_host_and_the_hosts_stop_as_a_whole() -> None:
    assert sorted(name for host in HOSTS for name in host) == sorted(MODULES)
    system = System(History(), seed=1)
    try:
        assert "stop all of a host" in Nemesis(system, system.history, None, 1).table  # type: ignore[arg-type]
    finally:
        system.ground.close(keep_logs=False)


@pytest.mark.slow
async def test_a_delivery_long_after_the_deletion_of_its_endpoint_is_a_violation(system: System) -> None:
    history = system.history
    history.deleted[f"{DOOMED}-1"] = history.began
    history.doomed += [(f"{DOOMED}-1", history.began + 1), (f"{DOOMED}-2", history.began + 900)]
    await _deletions(system, history)
    assert history.sound
    history.doomed.append((f"{DOOMED}-1", history.began + 60))
    await _deletions(system, history)
    assert history.counts["told_after_deletion"] == 1


def test_parts_run_with_the_shipped_limit_of_lost_workers() -> None:
    system = System(History(), seed=1)
    try:
        assert system.settings.item_attempts == Settings.model_fields["item_attempts"].default
    finally:
        system.ground.close(keep_logs=False)


def test_every_kind_of_part_but_the_steward_can_have_a_wrong_clock() -> None:
    system = System(History(), seed=1)
    try:
        faults = Nemesis(system, system.history, None, 1).table  # type: ignore[arg-type]
        kinds = {name.partition(" under another clock")[0] for name in faults if "another clock" in name}
        assert kinds == {"drain worker", "api", "notifier"}
        assert {"delete endpoint", "outage beyond the lease"} <= faults.keys()
    finally:
        system.ground.close(keep_logs=False)


@pytest.mark.parametrize("name", ["", *MUST_BE_ZERO])
def test_the_last_line_is_one_json_object_and_the_exit_code_is_nonzero_after_a_violation(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def check(seed: int, seconds: float, **_: object) -> History:
        history = History()
        history.fault("full disk")
        if name and seed == 8:
            history.wrong(name, "so it is")
        return history

    monkeypatch.setattr(command, "check", check)
    assert command.main(["--json", "--seed", "7", "--seed", "8"]) == (1 if name else 0)
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert told.keys() >= WANTED
    assert (told["seeds"], told["faults"], told["seed_list"]) == (2, 2, [7, 8])
    assert sum(told[name] for name in MUST_BE_ZERO) == bool(name)
    assert "seed 8" in err


def test_without_a_seed_there_are_as_many_runs_as_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def check(seed: int, seconds: float, **_: object) -> History:
        return History()

    monkeypatch.setattr(command, "check", check)
    assert command.main(["--json", "--seeds", "3"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["seeds"] == 3


@pytest.mark.slow
async def test_a_run_that_raises_is_a_violation_and_does_not_stop_the_checker(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.crash import checker

    async def broken(*_: object) -> None:
        raise RuntimeError("no answer")

    monkeypatch.setattr(checker, "_attack", broken)
    history = await checker.check(1, 1, kind=Small)
    assert history.counts["broken_runs"] == 1
    assert any("no answer" in detail for detail in history.details)
