"""Claims about `slackwater up` and its supervisor, without the parts themselves."""

import asyncio
import io
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import psycopg
import pytest
import structlog
from pydantic import SecretStr
from rich.console import Console

from app import __version__, clock, private_targets, processes
from app import settings as configuration
from app.api_url import base_url
from app.batches import incidents as timeline
from app.changes import service as changes
from app.cli import demo, doctor, installation, last_run, up
from app.cli import supervisor as supervisor_module
from app.cli.leftovers import ENGINE_MARK, MARK
from app.cli.supervisor import Child, Supervisor
from app.cli.up_output import Screen
from app.db import cluster, embedded
from app.db.pool import Database
from app.engines import service as engines
from app.environment import child_environment
from app.queue import service as queue
from app.settings import Settings
from app.telemetry import log_file
from app.user_errors import Failure
from testing import clusters
from testing.waiting import LIMIT_SECONDS, eventually
from tests.cli.support import Run, engine_pages, serving
from workers.gpu import managed_engine


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which something else listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def attached(settings: Settings, **changes: object) -> Settings:
    return settings.model_copy(update={"engine_url": "http://127.0.0.1:1", **changes})


def test_a_port_in_use_is_told_before_anything_starts(settings: Settings, taken: int) -> None:
    with pytest.raises(Failure, match=f"port {taken}") as failure:
        up.up(attached(settings, port=taken), Console(file=io.StringIO()))
    assert "SLACKWATER_PORT" in failure.value.remedy
    assert "--port" in failure.value.remedy


@pytest.mark.parametrize(
    ("wanted", "window", "words"),
    [("another", 8192, ["serves", "another"]), (None, 2048, ["2048", "8192"])],
)
@pytest.mark.parametrize("command", ["up", "demo"])
def test_an_engine_that_contradicts_is_refused_before_anything_starts(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, command: str, wanted: str | None, window: int, words: list[str]
) -> None:
    monkeypatch.setattr(up, "Supervisor", pytest.fail)
    monkeypatch.setattr(demo, "Supervisor", pytest.fail)
    console = Console(file=io.StringIO())
    with serving(engine_pages("smollm2-135m-instruct", window=window)) as url:
        changes = {"engine_url": url} | ({"engine_model": wanted} if wanted else {})
        started = attached(settings, **changes)
        with pytest.raises(Failure) as refusal:
            up.up(started, console) if command == "up" else demo.demo(started, console, None)
    assert all(word in refusal.value.problem for word in words)
    assert refusal.value.remedy


async def test_up_refuses_an_engine_with_a_smaller_window_than_the_database_promises(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "Supervisor", pytest.fail)
    async with database.durable() as conn:
        await conn.execute("insert into pool (model, context_window) values ('org/theirs', 4096)")
        pool = await engines.ensure_pool(conn, "org/theirs")
        worker = await queue.register_worker(conn, pool_id=pool, host="h", pid=1, lease_seconds=60)
        taken = {"name": "other", "pool_id": pool, "url": "http://x:1", "mode": "attached"}
        assert await engines.take_engine(conn, **taken, worker_id=worker)
    with serving(engine_pages("org/theirs", window=2048)) as url, pytest.raises(Failure) as refusal:
        await asyncio.to_thread(up.up, attached(settings, engine_url=url), Console(file=io.StringIO()))
    assert "2048" in refusal.value.problem
    assert "4096" in refusal.value.problem
    assert "--max-model-len 4096" in refusal.value.remedy


@pytest.mark.parametrize("wanted", [{}, {"engine_model": "smollm2-135m-instruct"}])
def test_a_server_that_is_no_engine_is_refused_and_not_taken_for_away(
    settings: Settings, wanted: dict[str, str]
) -> None:
    with serving({"/": "hello"}) as url, pytest.raises(Failure, match="answers, but not as an engine does") as refusal:
        doctor.require_engine(attached(settings, engine_url=url, **wanted))
    assert "--attach" in refusal.value.remedy


def test_an_api_of_slackwater_is_not_taken_for_an_engine(api: Settings) -> None:
    with pytest.raises(Failure, match="is a Slackwater, not an engine"):
        doctor.require_engine(attached(api, engine_url=f"http://127.0.0.1:{api.port}"))


@pytest.mark.parametrize("name", [{}, {"engine_model": "smollm2-135m-instruct"}])
def test_an_api_of_slackwater_is_no_engine_with_a_valid_key_either(
    api: Settings, key: str, name: dict[str, str]
) -> None:
    place = {"engine_url": f"http://127.0.0.1:{api.port}", "engine_api_key": SecretStr(key)}
    with pytest.raises(Failure, match="is a Slackwater, not an engine"):
        doctor.require_engine(attached(api, **place, **name))


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://gpu:8000/v1", "http://gpu:8000"),
        ("http://gpu:8000/v1/", "http://gpu:8000"),
        ("https://gpu/llm/v1", "https://gpu/llm"),
        ("http://v1", "http://v1"),
    ],
)
def test_the_version_at_the_end_of_an_engines_url_is_dropped(given: str, url: str) -> None:
    assert Settings(engine_url=given).engine_url == url


@pytest.mark.parametrize("command", [installation.up, lambda attach: installation.demo(None, attach)])
@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_attach_is_refused_and_starts_no_engine(
    monkeypatch: pytest.MonkeyPatch, command: Callable[..., None], empty: str
) -> None:
    monkeypatch.setattr(up, "up", lambda *_, **__: pytest.fail("started"))
    monkeypatch.setattr(demo, "demo", lambda *_: pytest.fail("started"))
    with pytest.raises(Failure, match="--attach: the URL is empty"):
        command(attach=empty)


async def test_the_banner_names_the_engine_that_does_not_answer_and_why(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(settings: Settings) -> None:
        pass

    monkeypatch.setattr(up, "until_ready", at_once)
    monkeypatch.setattr(up.ready_message, "engine_problem", lambda _: (None, "The engine does not answer."))
    with serving({}) as url:
        plain = url.replace("http://", "https://")
        for engine, why in (("http://127.0.0.1:1", "Connection refused"), (plain, "http:// instead of https://?")):
            given = attached(settings, engine_url=engine.replace("://", "://me:secret@"))
            supervisor, told = Supervisor(given), io.StringIO()
            supervisor.ready.set()
            monkeypatch.setattr(up.Greeter, "_gives_up", lambda _: True)
            stages = Screen(settings.data_dir, Console(file=told, width=400), "engine-0").stages
            problem = await up.Greeter(given, supervisor, Console(file=told), stages)._start()
            assert engine.partition("://")[2] in problem
            assert why in problem
            assert "secret" not in problem + told.getvalue()


def test_an_attached_engine_says_its_model(settings: Settings) -> None:
    with serving(engine_pages("org/theirs", window=2048)) as url:
        found = doctor.require_engine(attached(settings, engine_url=url))
    assert (found.engine_model, found.wanted_model) == ("org/theirs", "org/theirs")
    away = attached(settings)
    assert doctor.require_engine(away).wanted_model is None
    assert "SLACKWATER_ENGINE_MODEL" not in child_environment(away, {})
    assert child_environment(found, {})["SLACKWATER_ENGINE_MODEL"] == "org/theirs"


OTHERS_REACH = ["0.0.0.0", "::", "192.168.1.7", "gpu.lan"]


def test_only_a_loopback_address_is_reached_by_this_machine_alone(settings: Settings) -> None:
    own = ["localhost", "127.0.0.1", "127.0.0.7", "::1"]
    found = [
        host for host in own + OTHERS_REACH if private_targets.only_here(settings.model_copy(update={"host": host}))
    ]
    assert found == own


@pytest.mark.parametrize("host", OTHERS_REACH)
def test_up_does_not_start_where_others_could_have_webhooks_sent_to_this_machine(settings: Settings, host: str) -> None:
    with pytest.raises(Failure) as failure:
        up.up(settings.model_copy(update={"host": host, "webhook_allow_private": "loopback"}), Console())
    assert f"SLACKWATER_HOST={host}" in failure.value.problem
    assert "SLACKWATER_WEBHOOK_ALLOW_PRIVATE=loopback" in failure.value.problem
    assert failure.value.remedy == "Set SLACKWATER_WEBHOOK_ALLOW_PRIVATE=off, or SLACKWATER_HOST=127.0.0.1."


def test_neither_does_the_api(settings: Settings) -> None:
    exposed = settings.model_copy(update={"host": "0.0.0.0", "webhook_allow_private": "loopback"})
    command, environment = [sys.executable, "-m", "app.api"], child_environment(exposed, {})
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert ended.returncode == 1
    assert "SLACKWATER_HOST=0.0.0.0" in ended.stderr


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "http://127.0.0.1:8700"), ("::", "http://[::1]:8700"), ("localhost", "http://localhost:8700")],
)
def test_the_api_is_reached_where_it_listens(host: str, url: str) -> None:
    assert base_url(Settings(host=host)) == url


@pytest.mark.parametrize(
    ("said", "host", "allowed"),
    [
        (None, "127.0.0.1", "loopback"),
        (None, "::1", "loopback"),
        (None, "localhost", "loopback"),
        (None, "0.0.0.0", "off"),
        (None, "gpu.lan", "off"),
        ("false", "127.0.0.1", "off"),
        ("true", "127.0.0.1", "loopback"),
        ("all", "0.0.0.0", "all"),
    ],
)
def test_up_allows_local_receivers_to_callers_of_the_same_machine_unless_told_not_to(
    monkeypatch: pytest.MonkeyPatch, said: str | None, host: str, allowed: str
) -> None:
    monkeypatch.setenv("SLACKWATER_HOST", host)
    ran: list[Settings] = []
    monkeypatch.setattr(up, "up", lambda settings, console, verbose: ran.append(settings))
    monkeypatch.delenv("SLACKWATER_WEBHOOK_ALLOW_PRIVATE", raising=False)
    if said:
        monkeypatch.setenv("SLACKWATER_WEBHOOK_ALLOW_PRIVATE", said)
    configuration.load.cache_clear()
    installation.up(attach="http://gpu:8000/", port=8701)
    configuration.load.cache_clear()
    assert (ran[0].webhook_allow_private, ran[0].engine_url, ran[0].port) == (allowed, "http://gpu:8000", 8701)


async def test_parts_and_engines_that_a_killed_predecessor_left_are_killed(settings: Settings) -> None:
    assert ENGINE_MARK == managed_engine.MARK
    folder = os.path.realpath(settings.data_dir)
    marks = [{MARK: folder}, {ENGINE_MARK: f"{folder}:{settings.engine_name}"}]
    left = [subprocess.Popen([sys.executable, "-c", "input()"], env=mark, stdin=subprocess.PIPE) for mark in marks]
    others = subprocess.Popen([sys.executable, "-c", "input()"], env={ENGINE_MARK: "/x:y"}, stdin=subprocess.PIPE)
    async with Supervisor(settings, sys.stderr)._sole_owner():
        assert [process.wait(LIMIT_SECONDS) for process in left] == [-9, -9]
    assert others.poll() is None
    others.kill()
    others.wait()


async def test_leftovers_are_swept_even_when_the_run_fails(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    swept: list[str] = []
    monkeypatch.setattr(processes, "marked", lambda name, value: swept.append(name) or [])
    with pytest.raises(RuntimeError):
        async with Supervisor(settings, sys.stderr)._sole_owner():
            swept.clear()
            raise RuntimeError
    assert swept == [MARK, ENGINE_MARK]


async def test_a_database_that_is_just_starting_is_up_before_the_keeper_ends(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go, events = asyncio.Event(), asyncio.Event(), list[str]()
    loop = asyncio.get_running_loop()

    def start(settings: Settings) -> str:
        loop.call_soon_threadsafe(began.set)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result(5)
        events.append("started")
        return ""

    monkeypatch.setattr(embedded, "start", start)
    supervisor = Supervisor(settings.model_copy(update={"database_url": ""}), sys.stderr)
    keeper = asyncio.create_task(supervisor._keep_database())
    await asyncio.wait_for(began.wait(), LIMIT_SECONDS)
    supervisor.stop()
    await asyncio.sleep(0)
    assert not keeper.done()
    go.set()
    await asyncio.wait_for(keeper, LIMIT_SECONDS)
    assert events == ["started"]


async def test_a_killed_server_is_started_again_and_one_that_closed_only_our_connection_is_not(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = settings.model_copy(update={"database_url": ""})
    starts, start = list[str](), embedded.start

    def counted(settings: Settings) -> str:
        starts.append(settings.engine_name)  # the first one takes what is left of the killed server for a server
        return embedded.database_url(settings) if len(starts) == 1 else start(settings)

    try:
        await asyncio.to_thread(start, own)
        monkeypatch.setattr(embedded, "start", counted)
        supervisor = Supervisor(own, sys.stderr)
        keeper = asyncio.create_task(supervisor._keep_database())
        async with asyncio.timeout(120):
            first = await _watching(own)
            said: list[str] = []
            note = SimpleNamespace(**dict.fromkeys(("info", "warning"), lambda event, **_: said.append(event)))
            monkeypatch.setattr("app.cli.supervisor.log", note)
            await asyncio.to_thread(_execute, own, f"select pg_terminate_backend({first})")
            assert await _watching(own, but=first) != first
            assert not starts
            os.kill(int((cluster.place(own).cluster / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
            while not starts:
                await asyncio.sleep(0.05)
            await _watching(own)
            supervisor.stop()
            await keeper
            assert said == ["database.down", "database.restarted"], (
                "one end, and one return, when a connection showed it"
            )
    finally:
        await asyncio.to_thread(embedded.stop, own, "immediate")
        await asyncio.to_thread(clusters.remove, own.data_dir)


def _execute(settings: Settings, statement: str) -> list[tuple[int]]:
    with suppress(psycopg.OperationalError), psycopg.connect(embedded.database_url(settings), autocommit=True) as conn:
        return conn.execute(statement.encode()).fetchall()
    return []


async def _watching(settings: Settings, but: int = 0) -> int:
    """The server's process for the supervisor's connection, once there is one other than `but`."""
    query = f"select pid from pg_stat_activity where application_name = 'slackwater up' and pid <> {but}"
    while not (found := await asyncio.to_thread(_execute, settings, query)):
        await asyncio.sleep(0.05)
    return found[0][0]


async def test_the_stop_waits_for_the_drain(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    real = asyncio.timeout
    monkeypatch.setattr(asyncio, "timeout", lambda seconds: asked.append(seconds) or real(seconds))
    await Supervisor(settings.model_copy(update={"drain_seconds": 300}), sys.stderr)._stop_children()
    assert asked[0] > 300


def test_an_up_that_its_settings_refuse_makes_nothing(settings: Settings, tmp_path: Path) -> None:
    wrong = {"data_dir": tmp_path / "new", "host": "0.0.0.0", "webhook_allow_private": "loopback"}
    with pytest.raises(Failure, match="would let callers on other machines"):
        up.up(settings.model_copy(update=wrong), Console(file=io.StringIO()))
    assert not (tmp_path / "new").exists()


HOLDS = """
import signal, sys, threading
from pathlib import Path
from app.cli.data_dir_lock import owned
from app.settings import Settings
ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
with owned(Settings(data_dir=Path(sys.argv[1]))):
    print("holds", flush=True)
    ended.wait()
"""


def test_down_stops_what_runs_on_the_data_directory_and_says_where_nothing_does(settings: Settings, local: Run) -> None:
    nothing = local("down")
    assert (nothing.exit_code, "No `slackwater up` runs on" in nothing.output) == (1, True)
    command = [sys.executable, "-c", HOLDS, str(settings.data_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "holds\n"
        assert local("down").output == "Stopped.\n"
        assert process.wait(LIMIT_SECONDS) == 0


def test_down_after_a_kill_names_what_is_left_and_stops_it(local: Run, settings: Settings, tmp_path: Path) -> None:
    own = settings.model_copy(update={"database_url": "", "data_dir": tmp_path / "killed"})
    waits = [sys.executable, "-c", "input()"]
    embedded.start(own)
    try:
        server = cluster.server(cluster.place(own).cluster)
        mark = {MARK: str(own.data_dir)}
        with subprocess.Popen(waits, env=mark, stdin=subprocess.PIPE) as part:
            of_own = {"SLACKWATER_DATA_DIR": str(own.data_dir), "SLACKWATER_DATABASE_URL": ""}
            told = local("down", env=of_own).output
            assert told == (
                f"No `slackwater up` runs on {own.data_dir}. Stopped what one has left: "
                f"parts (pid {part.pid}), PostgreSQL (pid {server}).\n"
            )
            assert part.wait(LIMIT_SECONDS) == -9
        assert cluster.server(cluster.place(own).cluster) is None
        assert local("down", env=of_own).exit_code == 1
    finally:
        embedded.stop(own, "immediate")
        clusters.remove(own.data_dir)


def test_the_embedded_servers_wheel_is_imported_without_a_word() -> None:
    code = "from app.db import embedded; embedded._wheel()"
    done = subprocess.run([sys.executable, "-c", code], env={"PATH": "/usr/bin"}, capture_output=True, check=True)
    assert done.stderr == b""


def test_a_database_that_does_not_start_is_said_in_two_lines(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(settings: Settings) -> str:
        raise subprocess.CalledProcessError(1, ["initdb"], stderr="no room")

    stopped: list[Settings] = []
    monkeypatch.setattr(embedded, "start", broken)
    monkeypatch.setattr(embedded, "stop", stopped.append)
    own = settings.model_copy(update={"database_url": ""})
    with pytest.raises(Failure, match="The embedded PostgreSQL did not start: ") as failure:
        asyncio.run(Supervisor(own).run())
    assert str(embedded.log_file(settings)) in failure.value.remedy
    assert stopped


def test_stages_of_the_start_are_told_in_their_order(settings: Settings) -> None:
    begun: list[str] = []

    async def start() -> None:
        async with Supervisor(settings, on_stage=begun.append)._database():
            pass

    asyncio.run(start())
    assert begun == ["database", "schema"]


async def test_each_part_has_a_log_of_its_own(settings: Settings) -> None:
    supervisor = Supervisor(settings)
    for _ in range(2):
        process = await supervisor._start(Child("api", "platform"))
        assert await process.wait() == 0
    lines = log_file(settings.data_dir, "api").read_text().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("Linux")


def test_a_port_of_another_slackwater_is_told_as_such(
    settings: Settings, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "our_api", lambda _: True)
    with pytest.raises(Failure, match="Another Slackwater"):
        up.up(attached(settings, port=taken), Console(file=io.StringIO()))


def test_the_log_of_up_says_from_the_first_moment_what_was_started(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, instead in {"require_engine": lambda given: given, "bind_problem": lambda _: "", "_up": Mock()}.items():
        monkeypatch.setattr(up, name, instead)
    monkeypatch.setattr(asyncio, "run", Mock())
    before = structlog.get_config()
    try:
        up.up(settings, Console())
    finally:
        structlog.configure(**before)
    told = log_file(settings.data_dir, "up").read_text()
    assert "up.started" in told
    assert __version__ in told


async def test_a_part_that_dies_is_in_the_timeline_as_soon_as_the_database_is_back(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "_NOTE_PAUSE_SECONDS", 0.1)
    supervisor = Supervisor(settings.model_copy(update={"database_url": "postgresql://127.0.0.1:1/away"}), sys.stderr)
    began = clock.now()
    tasks = [
        asyncio.create_task(supervisor._keep(Child("notifier", "this"))),  # a module that ends at once
        asyncio.create_task(supervisor._note_deaths()),
    ]
    try:
        while supervisor._deaths.empty():  # of a second one, while the first is not noted
            await asyncio.sleep(0.05)
        back = clock.now()
        supervisor._settings = settings
        async with database.durable() as conn:
            found = await eventually(lambda: changes.page(conn, kinds=["part.died"], limit=9))
    finally:
        supervisor.stop()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert (found[-1].subject, found[-1].data["exit_code"]) == ("notifier", 0)
    assert began < found[-1].at < back


async def test_a_run_that_was_killed_is_once_in_the_timeline_at_its_last_sign_of_life(
    database: Database, settings: Settings
) -> None:
    began, seen = clock.now() - timedelta(hours=1), clock.now() - timedelta(minutes=3)
    assert last_run.begin(settings.data_dir) is None  # and it never ends
    signs = settings.data_dir / "logs" / "steward.alive"
    signs.parent.mkdir(parents=True, exist_ok=True)
    signs.touch()
    os.utime(settings.data_dir / "up.run", (began.timestamp(), began.timestamp()))
    os.utime(signs, (seen.timestamp(), seen.timestamp()))
    for _ in range(2):
        supervisor = Supervisor(settings, sys.stderr)
        async with supervisor._sole_owner():
            await supervisor._note_killed()
    async with database.durable() as conn:
        [found] = await timeline.timeline(conn, only_trouble=True)
    assert (found.kind, found.subject, found.facts["pid"]) == ("up.killed", "slackwater up", os.getpid())
    assert abs((found.position.at - seen).total_seconds()) < 0.001
    assert "was killed, or its machine stopped; it was started again 3 min later, " in found.message


async def test_a_part_that_ends_by_itself_is_shown_with_its_error_and_its_log(settings: Settings) -> None:
    supervisor = Supervisor(settings)
    keeping = asyncio.create_task(supervisor._keep(Child("api", "no.such.module")))
    try:
        with structlog.testing.capture_logs() as shown:
            await eventually(lambda: asyncio.sleep(0, [each for each in shown if each["event"] == "part.died"]))
    finally:
        supervisor.stop()
        keeping.cancel()
        await asyncio.wait([keeping])
    assert "No module named 'no'" in shown[-1]["error"]
    assert shown[-1]["log"] == str(log_file(settings.data_dir, "api"))
