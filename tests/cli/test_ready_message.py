"""Claims about the messages of `slackwater up` during and after its start."""

import asyncio
import io
import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog
from rich.console import Console

from app import clock
from app.access import origin
from app.api_url import base_url
from app.batches import installation_status
from app.cli import credentials, ready_message, up
from app.cli.data_dir_lock import owned, refuse_second, running
from app.cli.key import create_key, revoke_key
from app.cli.supervisor import Supervisor
from app.cli.up_output import Screen, StartStages
from app.engines import adoption
from app.settings import Settings
from app.telemetry import log_file
from app.user_errors import Failure
from testing.fakes.installation import CALM
from testing.fakes.installation import engine as row
from testing.waiting import eventually
from tests.cli.support import Run, serving

MODEL = "smollm2-135m-instruct"
_PROBLEMS = {"engine_down": [asdict(adoption.away())]}


@pytest.fixture
def engine(settings: Settings) -> Iterator[Any]:
    """Writes the installation's engine row as a live worker would."""
    with psycopg.connect(settings.database_url, autocommit=True) as conn:
        conn.execute("insert into pool (model) values (%s)", (MODEL,))
        conn.execute(
            "insert into worker (worker_id, pool_id, host, pid, lease_until)"
            " overriding system value select 1, pool_id, 'h', 1, now() + interval '1 hour' from pool"
        )

        def write(state: str, reason: str | None = None, intake: str = "open") -> None:
            conn.execute("delete from engine")
            conn.execute(
                "insert into engine (name, pool_id, url, mode, state, reason, worker_id, intake, problems)"
                " select %s, pool_id, 'http://x', 'attached', %s, %s, 1, %s, %s from pool",
                (settings.engine_name, state, reason, intake, json.dumps(_PROBLEMS.get(reason or "", []))),
            )

        yield write


def text(show: Any, *, terminal: bool = False) -> str:
    """What is shown in 80 columns."""
    console = Console(file=io.StringIO(), width=80, force_terminal=terminal, record=True, highlight=False)
    show(console)
    return console.export_text()


def test_a_machine_without_a_key_gets_one_once_and_stores_it(settings: Settings) -> None:
    create_key(settings, "demo", "of the demo", 1)
    first = ready_message.access(settings)
    assert credentials.find(settings) == (first.url, first.new_key)
    assert first.new_key in text(lambda console: ready_message.ready(settings, first, MODEL, console))
    again = ready_message.access(settings)
    assert (again.new_key, again.stored) == ("", True)
    assert "sk_sw_" not in text(lambda console: ready_message.ready(settings, again, MODEL, console))
    moved = ready_message.access(settings.model_copy(update={"port": 9999}))
    assert credentials.find(settings)[0] == moved.url == "http://127.0.0.1:9999"
    revoke_key(settings, first.new_key)
    assert ready_message.access(settings).new_key not in ("", first.new_key)


def test_a_login_elsewhere_stays_and_the_commands_say_whom_they_ask(settings: Settings) -> None:
    credentials.save(settings.data_dir, "https://far.example", "acme", "sk_sw_far_away", local=False)
    access = ready_message.access(settings)
    assert credentials.find(settings)[1] == "sk_sw_far_away"
    [(_, curl), (_, submit)] = ready_message.commands(settings, access, MODEL)
    for command in (curl, submit):
        assert f"SLACKWATER_URL={access.url}" in command
        assert f"SLACKWATER_API_KEY={access.new_key}" in command
    assert ready_message.access(settings).new_key == ""


def test_a_key_that_cannot_be_stored_is_shown_with_commands_that_carry_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(credentials, "save", full)
    access = ready_message.access(settings)
    assert (access.new_key[:6], access.stored) == ("sk_sw_", False)
    assert access.new_key in ready_message.commands(settings, access, MODEL)[0][1]


def test_every_line_but_a_key_fits_into_80_columns(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/slackwater", "up"])
    short = settings.model_copy(update={"data_dir": Path("/var/lib/slackwater")})
    access = ready_message.Access("http://127.0.0.1:8700", "sk_sw_cfaee5c9edd0_" + "x" * 43, stored=True)
    for terminal in (True, False):
        for said in (
            text(lambda console: ready_message.ready(short, access, MODEL, console), terminal=terminal),
            text(lambda console: ready_message.waiting(short, access, "It is away.", console), terminal=terminal),
        ):
            assert max(map(len, said.splitlines())) <= 80
    commands = [command for _, command in ready_message.commands(short, access, MODEL)]
    shown = text(lambda console: ready_message.ready(short, access, MODEL, console)).splitlines()
    assert all(line in shown for command in commands for line in command.splitlines())


def test_the_message_says_that_the_slots_of_an_engine_are_not_known(settings: Settings) -> None:
    attached = settings.model_copy(update={"engine_url": "http://127.0.0.1:1"})
    for problems, known in (([asdict(adoption.slots_unknown(0))], False), ([], True)):
        told = row(mode="attached", problems=problems)
        with serving({"/status": json.dumps(installation_status.describe([told], CALM))}) as url:
            access = ready_message.Access(url, "", stored=True)
            said = text(lambda console: ready_message.ready(attached, access, MODEL, console))  # noqa: B023
        assert ("how many requests it runs at once is not known yet (--slots N)" in said) != known


def test_the_message_says_how_many_problems_there_are(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/slackwater", "up"])
    told = row(mode="attached", protection="outside", scheduling_policy=None, reason="closed_unknown")
    with serving({"/status": json.dumps(installation_status.describe([told], CALM))}) as url:
        access = ready_message.Access(url, "", stored=True)
        said = text(lambda console: ready_message.ready(settings, access, MODEL, console))
    assert f"  Status   degraded: 1 problem, 2 warnings; {ready_message.program()} status\n" in said


@pytest.mark.parametrize("called", ["bin/slackwater", "{here}/bin/slackwater"])
def test_commands_are_shown_as_this_one_was_called_even_if_the_path_has_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: str
) -> None:
    command = tmp_path / "bin" / "slackwater"
    command.parent.mkdir()
    command.touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [called.format(here=tmp_path), "up"])
    assert ready_message.program() == "bin/slackwater"
    monkeypatch.setenv("PATH", str(command.parent))
    assert ready_message.program() == ("slackwater" if called.startswith("{") else "bin/slackwater")


def test_an_embedding_model_gets_commands_that_it_can_answer(settings: Settings, tmp_path: Path) -> None:
    models = tmp_path / "embedders.toml"
    models.write_text('[models.bge]\ntask = "text-embeddings"\ncontext_window = 512\n')
    embeds = settings.model_copy(update={"models_file": models, "engine_model": "bge"})
    access = ready_message.Access("http://127.0.0.1:8700", "", stored=True)
    [(_, curl), (_, batch)] = ready_message.commands(embeds, access, "bge")
    assert "/v1/embeddings" in curl
    assert '{"text": "Slack water"}' in batch
    assert "temperature" not in curl + batch


def test_the_data_directory_is_named_where_it_is_not_the_default(settings: Settings) -> None:
    access = ready_message.Access("http://127.0.0.1:8700", "", stored=True)
    [(_, curl), _] = ready_message.commands(settings, access, MODEL)
    assert f"export SLACKWATER_DATA_DIR={shlex.quote(str(settings.data_dir))}" in curl
    default = settings.model_copy(update={"data_dir": Settings.model_fields["data_dir"].default})
    [(_, curl), _] = ready_message.commands(default, access, MODEL)
    assert "export" not in curl


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("ready",), ""),
        (("ready", "draining", "draining"), "engine-0 is drained; `bin/slackwater engine undrain engine-0` undoes it."),
        (("down", "engine_down"), "The engine does not answer. Start it, or correct --attach (SLACKWATER_ENGINE_URL)."),
        (("down", "model_missing"), "engine-0 runs, but without this model."),
        (("starting",), "engine-0 is starting."),
    ],
)
def test_why_no_request_would_succeed_is_said_as_it_is(
    settings: Settings, engine: Any, monkeypatch: pytest.MonkeyPatch, row: tuple[str, ...], said: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["bin/slackwater", "up"])
    attached = settings.model_copy(update={"engine_url": "http://gpu:8000"})
    assert ready_message.engine_problem(attached) == (None, "The GPU worker has not started yet.")
    engine(*row)
    found, problem = ready_message.engine_problem(attached)
    assert found is not None
    assert problem == said


def test_a_problem_that_a_silent_worker_reported_is_not_told_as_one_of_now(settings: Settings, engine: Any) -> None:
    engine("down", "engine_down")
    with psycopg.connect(settings.database_url, autocommit=True) as conn:
        conn.execute("update worker set lease_until = now() - interval '1 minute'")
    assert ready_message.engine_problem(settings) == (None, "The GPU worker has not started yet.")


class Sure(Supervisor):
    """Its parts are up."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.ready.set()


async def greets(settings: Settings, console: Console) -> None:
    await up.Greeter(settings, Sure(settings), console, StartStages(Console(file=io.StringIO()))).run()


async def said_within(console: Console, wanted: str) -> None:
    await eventually(lambda: wanted in console.export_text(clear=False))


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API that answers, and no patience."""

    async def answers(settings: Settings) -> None:
        pass

    monkeypatch.setattr(up, "until_ready", answers)
    monkeypatch.setattr(up, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(up, "_ATTACH_SECONDS", 0.05)


@pytest.mark.usefixtures("fast")
async def test_the_commands_come_only_when_a_request_would_succeed(settings: Settings, engine: Any) -> None:
    attached = settings.model_copy(update={"engine_url": "http://gpu:8000"})
    engine("down", "engine_down")
    console = Console(file=io.StringIO(), width=80, record=True)
    greeting_task = asyncio.create_task(greets(attached, console))
    await said_within(console, "The engine at http://gpu:8000 does not answer")
    before = console.export_text(clear=False)
    assert "curl" not in before
    assert "sk_sw_" in before
    engine("ready")
    await said_within(console, "curl -s")
    await greeting_task
    assert console.export_text().count("sk_sw_") == 1


def test_of_a_list_any_engine_that_is_ready_answers_requests(settings: Settings, engine: Any) -> None:
    listed = settings.model_copy(update={"engines": "file:engines.toml", "engine_name": "none-of-them"})
    assert ready_message.engine_problem(listed) == (None, "The GPU worker has not started yet.")
    engine("down", "engine_down")
    assert ready_message.engine_problem(listed)[1]
    engine("ready")
    found, problem = ready_message.engine_problem(listed)
    assert (found and found.name, problem) == (settings.engine_name, "")


def test_the_usual_time_of_a_start_is_the_one_that_the_worker_learned(settings: Settings, engine: Any) -> None:
    assert ready_message.usual_start_seconds(settings) is None
    engine("ready")
    assert ready_message.usual_start_seconds(settings) is None
    with psycopg.connect(settings.database_url) as conn:
        conn.execute("update engine set start_seconds = 46.5")
    assert ready_message.usual_start_seconds(settings) == 46.5


@pytest.mark.usefixtures("fast")
async def test_what_keeps_it_from_greeting_is_logged_and_stops_nothing(
    settings: Settings, engine: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(settings: Settings) -> None:
        raise OSError("disk full")

    engine("ready")
    monkeypatch.setattr(ready_message, "access", broken)
    monkeypatch.setattr(
        up, "log", structlog.get_logger()
    )  # the module's may still write to where an earlier test began
    await greets(settings, Console(file=io.StringIO()))
    assert "start.not_greeted" in capsys.readouterr().out


def test_a_second_one_says_where_the_first_runs(settings: Settings) -> None:
    refuse_second(settings)
    assert running(settings.data_dir) is None
    with owned(settings):
        owner = running(settings.data_dir)
        assert owner is not None
        assert (owner.url, owner.console) == (base_url(settings), "")
        held = json.loads((settings.data_dir / "up.lock").read_text())
        for attempt in (lambda: refuse_second(settings), lambda: up.up(settings, Console(file=io.StringIO()))):
            with pytest.raises(Failure, match="already runs") as failure:
                attempt()
            assert f"http://127.0.0.1:{settings.port}, pid {held['pid']}, since 20" in failure.value.problem
            assert "SLACKWATER_DATA_DIR" in failure.value.remedy
        assert json.loads((settings.data_dir / "up.lock").read_text()) == held
    refuse_second(settings)


def test_the_link_to_the_console_is_that_of_the_one_that_runs(settings: Settings, local: Run) -> None:
    with owned(settings.model_copy(update={"console_port": 18711})):
        assert local("console", "login").output.startswith("http://127.0.0.1:18711/console/login?token=")
    assert local("console", "login").output.startswith(f"{origin.of(settings)}/console/login?token=")


def test_a_lock_that_says_nothing_is_respected_as_well(settings: Settings) -> None:
    with owned(settings):
        (settings.data_dir / "up.lock").write_text("{")
        with pytest.raises(Failure, match=r"already runs on [^ ]+\.$"):
            refuse_second(settings)


def screen(settings: Settings, *, terminal: bool, verbose: bool = False) -> Screen:
    (settings.data_dir / "logs").mkdir(exist_ok=True)
    console = Console(file=io.StringIO(), width=80, force_terminal=terminal, record=True, highlight=False)
    return Screen(settings.data_dir, console, settings.engine_name, verbose=verbose)


def write(settings: Settings, *lines: str) -> None:
    with log_file(settings.data_dir, "gpu-worker").open("a") as log:
        log.writelines(f"{line}\n" for line in lines)


def event(level: str, text: str) -> str:
    return f"2026-11-22T12:00:00.000000Z [{level:<9}] gpu/engine-0  {text}"


TRACE = ["Traceback (most recent call last):", '  File "x.py", line 1, in <module>', "RuntimeError: no device"]


@pytest.mark.parametrize("terminal", [True, False])
def test_only_warnings_and_errors_are_shown_and_what_the_end_waits_for(settings: Settings, terminal: bool) -> None:
    shown = screen(settings, terminal=terminal)
    draining = event("info", "worker.draining                in_flight={} seconds=20.0")
    write(settings, event("info", "quiet"), event("error", "engine.died log=/x"), *TRACE, "a word of a library")
    write(settings, draining.format(0), draining.format(30))
    shown.poll()
    died, drains = shown.console.export_text().splitlines()
    assert "engine.died" in died
    assert drains == "engine-0 finishes 30 requests, in at most 20 s."


FAILED = "error connecting in 'pool-1': connection failed: FATAL:  the database system is starting up"


@pytest.mark.parametrize("terminal", [True, False])
def test_of_an_outage_of_the_database_its_begin_and_end_are_said_and_the_rest_is_in_the_logs(
    settings: Settings, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    shown = screen(settings, terminal=terminal)

    def say(part: str, level: str, text: str) -> None:
        with log_file(settings.data_dir, part).open("a") as log:
            log.write(event(level, text) + "\n")
        shown.poll()

    say("gpu-worker", "warning", FAILED)  # before the supervisor notices
    for _ in range(2):
        say("up", "warning", "database.down error='connection refused'")
    say("gpu-worker", "error", FAILED)
    say("notifier", "warning", "arrivals.not_told")
    say("up", "error", "part.died name=api")
    now += 3
    say("up", "info", "database.restarted seconds=2.6")
    say("steward", "warning", "worker.reaped workers=1")
    say("gpu-worker", "error", "engine.died log=/x")
    now += 61
    say("steward", "warning", "broker.away")
    say("steward", "warning", "error ignored in rollback on <Connection>: another command is already in progress")
    now += 2
    shown.poll()
    said = " ".join(shown.console.export_text().split())
    first = "The database has ended; it is started again. What the parts say of that is in the logs only."
    assert said.startswith(first)
    assert said.count("The database has ended") == 1
    order = ["part.died", "The database is back, after 2.6 s.", "engine.died", "broker.away"]
    assert sorted(order, key=said.index) == order
    assert not any(word in said for word in ("FATAL", "arrivals", "reaped", "rollback"))


def test_a_line_about_a_connection_is_held_for_a_second_and_at_the_end_not(settings: Settings) -> None:
    shown = screen(settings, terminal=False)
    write(settings, event("error", FAILED))
    shown.poll()
    assert "FATAL" not in shown.console.export_text(clear=False)
    shown.poll(last=True)
    assert "FATAL" in shown.console.export_text()


def test_while_stages_are_shown_a_terminal_gets_only_what_asks_for_attention_and_no_traceback(
    settings: Settings,
) -> None:
    shown = screen(settings, terminal=True, verbose=True)
    shown.stages.open()
    write(settings, event("info", "quiet"), event("error", "engine.died log=/x"), *TRACE, "error said plainly")
    shown.poll()
    shown.stages.close()
    text = shown.console.export_text(clear=False)
    assert "quiet" not in text
    assert "Traceback" not in text
    assert all(part in text for part in ("engine.died log=/x", "RuntimeError: no device", "error said plainly"))
    write(settings, event("info", "later"))
    shown.poll()
    assert "later" in shown.console.export_text()


def test_a_pipe_gets_every_line_as_it_is_if_wanted(settings: Settings) -> None:
    shown = screen(settings, terminal=False, verbose=True)
    lines = [event("info", "x" * 200), *TRACE]
    write(settings, *lines)
    shown.poll()
    assert shown.console.export_text().splitlines() == lines


def test_a_stage_shows_its_time_what_is_usual_and_whether_it_came_to_a_good_end() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, record=True)
    stages = StartStages(console)
    stages.open()
    stages.begin("database")
    stages.begin("engine", "loading smollm2", usual=47.0, slow=True)
    assert stages._progress is not None
    console.print(stages._progress.get_renderable())
    going = console.export_text()
    assert "✓ database" in going
    assert "loading smollm2" in going
    assert "0 s, lately 47 s" in going
    stages.close()
    assert "✗ engine" in console.export_text()


def test_stages_are_plain_lines_in_a_pipe() -> None:
    console = Console(file=io.StringIO(), width=80, record=True)
    stages = StartStages(console)
    stages.open()
    stages.begin("database")
    stages.begin("engine", "loading m", usual=47.0, slow=True)
    stages.note("its weights are there")
    stages.end("it is away", failed=True)
    stages.close()
    first, *rest = console.export_text().splitlines()
    assert first.startswith("database  done, ")
    assert rest == [
        "engine    loading m, lately 47 s",
        "engine    its weights are there",
        "engine    it is away",
    ]


@pytest.mark.parametrize(("requests", "away"), [(13, False), (0, False), (13, True)])
async def test_the_end_says_what_it_waits_for_and_how_not_to(
    engine: Any, settings: Settings, requests: int, away: bool
) -> None:
    engine("ready")
    with psycopg.connect(settings.database_url, autocommit=True) as conn:
        conn.execute(
            "update engine set batch_in_flight = %s, sync_in_flight = %s", (requests - requests % 2, requests % 2)
        )
    if away:
        settings = settings.model_copy(update={"database_url": "postgresql://127.0.0.1:1/none"})
    shown, supervisor = screen(settings, terminal=False), Supervisor(settings)
    telling = asyncio.create_task(up._say_of_the_stop(settings, supervisor, shown))
    supervisor.stop()
    await telling
    said = shown.console.export_text()
    what = "running requests" if away else "13 running requests"
    wait = f"; {what} may take up to 20 s to end. Ctrl-C again stops at once."
    assert said == f"Stopping{wait if requests else '.'}\n"
