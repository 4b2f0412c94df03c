"""Claims about the logs of an installation: what is kept, how it is read, and how a terminal shows it."""

import io
from pathlib import Path

import pytest
import structlog

from app import telemetry
from app.cli import log_files, log_lines
from app.cli.data_dir_lock import owned
from app.cli.log_files import Tail
from app.settings import Settings
from app.user_errors import Failure
from tests.cli.support import Run

EVENT = "2026-11-22T12:00:{:02}.000000Z [{:<9}] {:<13} {}"


def event(second: int, part: str, text: str, level: str = "info") -> str:
    return EVENT.format(second, level, part, text)


def folder(tmp_path: Path, **files: list[str]) -> Path:
    (tmp_path / "logs").mkdir(exist_ok=True)
    for part, lines in files.items():
        telemetry.log_file(tmp_path, part.replace("_", "-")).write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def test_a_tail_gives_whole_lines_only_and_nothing_twice(tmp_path: Path) -> None:
    file = tmp_path / "api.log"
    tail = Tail(file)
    assert tail.read() == []
    assert not tail.grows
    with file.open("ab", buffering=0) as writer:
        writer.write(b"one\ntw")
        assert tail.grows
        assert tail.read() == ["one"]
        assert not tail.grows
        writer.write(b"o\n")
        assert tail.read() == ["two"]
    assert tail.read() == []


def test_a_rotated_file_loses_no_line_for_who_follows_it_and_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "api.log"
    with file.open("ab", buffering=0) as writer:
        tail = Tail(file)
        writer.write(b"one\n")
        assert tail.read() == ["one"]
        writer.write(b"two\n")
        assert not telemetry.rotate(file, limit=8)
        writer.write(b"three\n")
        assert telemetry.rotate(file, limit=8)
        writer.write(b"four\n")  # the writer has not reopened it
        assert tail.grows
        assert tail.read() == ["two", "three", "four"]
    assert (file.stat().st_size, telemetry.old_log(file).read_text()) == (5, "one\ntwo\nthree\n")
    assert log_files.latest([file], 10) == ["one", "two", "three", "four"]


def test_a_missing_file_is_not_rotated(tmp_path: Path) -> None:
    assert not telemetry.rotate(tmp_path / "nothing.log")


def test_the_parts_lines_are_shown_in_order_of_time_and_a_traceback_stays_whole(tmp_path: Path) -> None:
    trace = ["Traceback (most recent call last):", '  File "x"', "KeyError: 1"]
    api = [event(1, "api", "a"), event(4, "api", "d"), *trace]
    place = folder(tmp_path, api=api, steward=[event(2, "steward", "b"), event(9, "steward", "e")])
    files = log_files.chosen(place, None)
    assert log_files.latest(files, 100) == [api[0], event(2, "steward", "b"), *api[1:], event(9, "steward", "e")]
    assert log_files.latest(files, 2) == [trace[-1], event(9, "steward", "e")]


def test_an_unknown_part_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="There are no logs in"):
        log_files.chosen(tmp_path, None)
    with pytest.raises(Failure, match="no log of apy") as failure:
        log_files.chosen(folder(tmp_path, api=[], engine_0=[]), "apy")
    assert "api, engine-0" in failure.value.remedy


def test_during_a_demo_its_one_log_is_named(local: Run, settings: Settings) -> None:
    folder(settings.data_dir, demo=[event(1, "api", "now")], api=[event(0, "api", "before")])
    with owned(settings, "demo"):
        for part in ("api", "steward"):
            assert "whose parts all write to one log: `slackwater logs demo`." in local("logs", part).output
        assert local("logs", "demo").output == event(1, "api", "now") + "\n"
    assert local("logs", "api").output == event(0, "api", "before") + "\n"


def test_logs_prints_ours_and_one_of_an_engine_on_demand_as_they_are_in_a_pipe(local: Run, settings: Settings) -> None:
    folder(settings.data_dir, api=[event(1, "api", "x" * 200)], engine_0=["INFO of vLLM"])
    assert local("logs").output == event(1, "api", "x" * 200) + "\n"
    assert local("logs", "engine-0", "-n", "1").output == "INFO of vLLM\n"
    assert local("logs", "-n", "0").output == ""
    assert local("logs", "nothing").exit_code == 1


def test_what_is_added_is_followed(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    place = folder(tmp_path, api=["old"])
    file = telemetry.log_file(place, "api")
    shown: list[str] = []

    def pause(seconds: float) -> None:
        if len(shown) == 2:
            raise Stop
        with file.open("a") as writer:
            writer.write("new\n")

    with pytest.raises(Stop):
        log_files.follow([Tail.from_end(file)], shown.append, pause)
    assert shown == ["new", "new"]


@pytest.mark.parametrize("form", ["console", "json"])
def test_every_event_of_ours_is_read_back(form: str) -> None:
    before = structlog.get_config()
    out = io.StringIO()
    telemetry.configure(Settings(log_format=form), "steward", out)
    structlog.get_logger().warning("database.away", error="connection refused", seconds=3)
    structlog.configure(**before)
    line = log_lines.parse(out.getvalue().rstrip("\n"))
    assert line is not None
    assert (line.level, line.part, line.quiet) == ("warning", "steward", False)
    assert line.text.startswith("database.away error=")
    assert "seconds=3" in line.text


@pytest.mark.parametrize("line", ["", "Traceback (most recent call last):", "{broken", '{"event": 1}', "[1]"])
def test_what_is_no_event_is_told_apart(line: str) -> None:
    assert log_lines.parse(line) is None


def shown(line: str, width: int = 80) -> str:
    parsed = log_lines.parse(line)
    assert parsed is not None
    return log_lines.shown(parsed, width).plain


def test_a_terminal_gets_one_row_per_event_but_a_warning_is_never_cut() -> None:
    assert len(shown(event(1, "api", "x " * 100))) == 80
    assert shown(event(1, "api", "x" * 100, "warning")).endswith("x" * 100)


def test_the_row_of_a_batch_holds_its_whole_id_in_80_columns() -> None:
    name = "47fe1748-574b-456a-82f0-5333eec2a683"
    facts = f"done=448 failed=3 items=4000 items_per_second=188.1 ok=445 percent=11 request_id={name}"
    said = {
        "batch.started": "started, items: 4000",
        "batch.progress": "11 %, 188.1 items/s",
    }
    for kind, text in said.items():
        row = shown(event(1, "steward", f"{kind} {facts}"))
        assert f"batch {name} {text}" in row
        assert len(row) <= 80
    ended = shown(event(1, "steward", f"batch.completed {facts}"))
    assert ended.endswith(f"batch {name} completed, 445 ok, 3 failed, 188.1 items/s")
    assert "batch.late" in shown(event(1, "api", "batch.late age=3"))


def test_a_traceback_is_shown_by_its_last_line() -> None:
    hidden = log_lines.Tracebacks()
    lines = ["Traceback (most recent call last):", '  File "x", line 1', "    raise", "", "KeyError: 'x'", "more"]
    assert [line for line in lines if not hidden.drops(line)] == ["KeyError: 'x'", "more"]


def test_the_last_error_is_the_problem_of_a_failure_or_the_end_of_a_traceback() -> None:
    lines = [event(1, "gpu-worker", "started"), "Traceback (most recent call last):", '  File "x"', "KeyError: 'x'"]
    assert log_lines.last_error(lines) == "KeyError: 'x'"
    assert log_lines.last_error([*lines, "error No weights.", "      Prepare them.", ""]) == "No weights."
    assert log_lines.last_error(lines[:1]) == ""


def test_a_log_that_cannot_be_written_stops_no_work() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    before = structlog.get_config()
    telemetry.configure(Settings(), "test", Full())
    structlog.get_logger().info("still.working")
    structlog.configure(**before)
