"""The engine as our child: found dead it is started anew, and it never outlives its owner. A fake engine stands in."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from app import processes
from app.crypto import secret_key
from app.engines import catalogue
from app.engines.client import EngineClient
from app.engines.engine_key import engine_key
from app.engines.engine_report import EngineReport
from app.settings import Settings
from testing.waiting import LIMIT_SECONDS, eventually
from workers.engine.control_page import Report, Weights
from workers.engine.key_check import MIDDLEWARE, KeyCheck
from workers.engine.key_check import VARIABLE as VARIABLE_OF_KEY
from workers.engine.page_folder import VARIABLE, OwnPage
from workers.engine.step_stats_receiver import StepReceiver
from workers.gpu import managed_engine
from workers.gpu.managed_engine import MARK, ManagedEngine, vllm_command
from workers.gpu.recovery_time import UNKNOWN_SECONDS
from workers.gpu.tuning import WorkerTuning

QUICK = WorkerTuning(restart_seconds=(0.05, 0.2), engine_poll_seconds=0.05)
SOON_KILLED = replace(QUICK, engine_stop_seconds=0.2)
SOON_SECONDS = 12  # for what takes a second or two, so that a fault is seen soon
MODEL = "smollm2-135m-instruct"
FAKE = [sys.executable, "-m", "testing.fakes.engine", "--port"]
CORE = """
import ctypes, pathlib, sys, time
ctypes.CDLL(None).prctl(15, b"VLLM::EngineCore", 0, 0, 0)
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""
OWNER = """
import asyncio, sys
from pathlib import Path
from app.engines import catalogue
from app.settings import Settings
from tests.gpu.test_managed import make, running
async def main():
    async with running(make(Path(sys.argv[1]))):
        print("healthy", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


def make(folder: Path, command: list[str] | None = None, tuning: WorkerTuning = QUICK) -> ManagedEngine:
    """An engine of a data directory in which the model counts as prepared."""
    settings = Settings(data_dir=folder, engine_start_seconds=10)
    model = catalogue.load(settings.models_file).resolve(MODEL)
    assert model is not None
    weights = Path(model.path(folder))
    weights.mkdir(parents=True, exist_ok=True)
    (weights / "config.json").write_text("{}")
    engine = ManagedEngine(settings, model, command or ["true"], tuning)
    engine._command = command or [*FAKE, str(engine.port)]
    return engine


def sharing(folder: Path, name: str = "engine-0") -> ManagedEngine:
    """One whose scheduler would be ours, if vLLM were started."""
    plain = make(folder)
    engine = ManagedEngine(plain._settings.model_copy(update={"engine_name": name}), plain._model, tuning=QUICK)
    engine._command = [*FAKE, str(engine.port)]
    return engine


def pages_of(engine: ManagedEngine) -> Path:
    """The folder of its control pages."""
    return Path(engine.harvest.environment[VARIABLE])


def process_of(engine: ManagedEngine) -> list[int]:
    """The engine's process among those of its name."""
    port = str(engine.port).encode()
    return [pid for pid in pids(engine) if port in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]


@asynccontextmanager
async def running(engine: ManagedEngine, controls: Callable[[], bool] = lambda: True) -> AsyncIterator[EngineClient]:
    """The engine, healthy."""
    async with EngineClient(engine.url, timeout_seconds=5) as client:
        task = asyncio.create_task(engine.run(client.healthy, controls))
        try:
            await eventually(client.healthy)
            yield client
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def pids(engine: ManagedEngine) -> list[int]:
    return processes.marked(MARK, engine._mark)


async def test_stopping_leaves_no_process(tmp_path: Path) -> None:
    engine = make(tmp_path)
    async with running(engine):
        assert len(pids(engine)) == 1
    assert pids(engine) == []


async def test_a_standby_touches_nothing_of_the_engine_that_runs(tmp_path: Path) -> None:
    leader = sharing(tmp_path)
    async with running(leader):
        folder = pages_of(leader)
        own = OwnPage(folder, 0, b"one engi")
        own.page.publish(Report(steps=7), Weights())
        leader.harvest.command(0.0)
        written = own.page.commands()
        standby = sharing(tmp_path)
        standby.harvest.command(0.5)
        standby.harvest.close()
        assert written is not None
        assert (own.path.exists(), own.page.commands()) == (True, written)
        assert leader.harvest.report is not None
        assert leader.harvest.report.steps == 7
        own.close()
    assert not folder.exists()


async def test_an_engine_whose_scheduler_has_met_a_fault_is_started_anew_when_asked(tmp_path: Path) -> None:
    engine = sharing(tmp_path)
    async with running(engine) as client:
        [before] = process_of(engine)
        engine.harvest.renew = True
        await eventually(lambda: process_of(engine) not in ([], [before]))
        await eventually(client.healthy)
        assert not engine.harvest.renew


async def test_pages_of_workers_that_were_killed_are_cleared_by_the_next_that_starts_the_engine(tmp_path: Path) -> None:
    killed, other = sharing(tmp_path), sharing(tmp_path, "engine-0.abcdef01")
    for engine in (killed, other):
        engine.harvest.open()
        OwnPage(pages_of(engine), 0, b"one engi").close()
    async with running(sharing(tmp_path)):
        assert not pages_of(killed).exists()
        assert pages_of(other).exists()


async def test_a_socket_that_a_killed_worker_left_is_cleared_and_one_that_is_heard_stays(tmp_path: Path) -> None:
    killed, living = make(tmp_path).harvest.socket, make(tmp_path).harvest.socket
    assert killed is not None
    assert living is not None
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(killed))
    receiver = StepReceiver(living, lambda _: None)
    await receiver.open()
    make(tmp_path)
    assert (killed.exists(), living.exists()) == (False, True)
    receiver.close()


async def test_a_worker_that_has_lost_its_engine_ends_its_own_process_and_not_its_successors(tmp_path: Path) -> None:
    """Stopped for longer than its lease, it finds its process killed, and has not yet heard that it is displaced."""
    old, new = make(tmp_path), make(tmp_path)
    lost, stop = asyncio.Event(), asyncio.Event()

    async def displaced() -> None:
        async with running(old, lambda: not lost.is_set()):
            await stop.wait()

    task = asyncio.create_task(displaced())
    await eventually(lambda: process_of(old))
    lost.set()
    [before] = process_of(old)
    async with asyncio.timeout(SOON_SECONDS), running(new) as client:
        [successor] = process_of(new)
        await eventually(lambda: process_of(old) not in ([], [before]))
        stop.set()
        await task
        assert process_of(old) == []
        assert process_of(new) == [successor]
        assert await client.healthy()


async def test_an_engine_that_dies_is_started_anew(tmp_path: Path) -> None:
    engine = make(tmp_path)
    async with running(engine) as client:
        [first] = pids(engine)
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: pids(engine) not in ([], [first]))
        await eventually(client.healthy)


async def test_an_engine_says_how_it_ended_until_it_answers_again(tmp_path: Path) -> None:
    engine = make(tmp_path)
    async with running(engine):
        answering, engine._command = engine._command, ["sleep", "600"]
        for _ in range(2):
            [first] = pids(engine)
            os.kill(first, signal.SIGKILL)
            await eventually(lambda first=first: pids(engine) not in ([], [first]))  # type: ignore[misc]
            assert engine.ended == "it was killed (SIGKILL)"
            engine._command = answering
        await eventually(lambda: engine.ended is None)


async def test_how_an_engine_ended_and_that_it_is_away_for_a_whole_start_is_known_before_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, known = make(tmp_path), list[tuple[str | None, float | None]]()
    real = engine._stop

    async def stop(process: asyncio.subprocess.Process, grace_seconds: float) -> None:
        known.append((engine.ended, engine.comeback.expected()))
        await real(process, grace_seconds)

    monkeypatch.setattr(engine, "_stop", stop)
    async with running(engine):
        engine.comeback.answers()
        engine.comeback.learned = 80.0
        engine.comeback.lost()
        os.kill(pids(engine)[0], signal.SIGKILL)
        await eventually(lambda: bool(known))
    assert known[0] == ("it was killed (SIGKILL)", pytest.approx(80, abs=5))


def test_how_the_process_of_an_engine_ended_is_reported_at_once() -> None:
    away = EngineReport(False, "engine_down", 0)
    assert replace(away, detail="it was killed (SIGKILL)").urgent != away.urgent
    unread = replace(away, ready=True)
    assert replace(unread, detail="GET /metrics takes too long").urgent == unread.urgent


async def test_an_engine_whose_core_is_killed_is_started_anew_at_once_though_its_server_still_answers(
    tmp_path: Path,
) -> None:
    (tmp_path / "core.py").write_text(CORE)
    engine, there = make(tmp_path, tuning=SOON_KILLED), tmp_path / "there"
    core = (
        f"rm -f {there}; {sys.executable} {tmp_path / 'core.py'} {there} & while [ ! -e {there} ]; do sleep 0.02; done"
    )
    engine._command = ["bash", "-c", f"trap '' TERM; {core}; exec {' '.join(engine._command)}"]
    with capture_logs() as said:
        async with running(engine) as client:
            await eventually(lambda: any(line["event"] == "engine.healthy" for line in said))
            first = pids(engine)
            [victim] = processes.titled(first, "VLLM::")
            os.kill(victim, signal.SIGKILL)
            await eventually(lambda: (now := pids(engine)) and not set(now) & set(first))
            await eventually(client.healthy)
            in_vain = [line for line in said if line["event"] == "engine.killed"]
    [died] = [line for line in said if line["event"] == "engine.died"]
    assert died["reason"] == f"its process {victim} has died"
    assert died["restart_in_seconds"] == 0
    assert not in_vain  # its server, which ignores SIGTERM, was not asked to end first


async def test_an_engine_that_was_up_teaches_how_long_a_start_takes(tmp_path: Path) -> None:
    engine = make(tmp_path)
    assert engine.comeback.expected() == UNKNOWN_SECONDS
    async with running(engine):
        engine.comeback.answers()  # as health says it
        assert engine.comeback.learned is not None
        assert engine.comeback.learned > 0
        engine.comeback.starts()
        assert engine.comeback.expected() == pytest.approx(max(1, engine.comeback.learned), abs=0.5)


async def test_an_engine_that_ignores_sigterm_is_killed_with_its_whole_group(
    tmp_path: Path,
) -> None:
    engine = make(tmp_path, tuning=SOON_KILLED)
    stubborn = f"trap '' TERM; {' '.join(engine._command)} & wait; sleep 60 & wait"
    engine._command = ["bash", "-c", stubborn]
    async with running(engine):
        assert len(pids(engine)) >= 2
    assert pids(engine) == []


async def test_an_engine_that_never_gets_healthy_is_started_anew(tmp_path: Path) -> None:
    count = tmp_path / "starts"
    engine = make(tmp_path, ["bash", "-c", f"echo >> {count}; sleep 60"])
    engine._settings = engine._settings.model_copy(update={"engine_start_seconds": 0.1})

    async def healthy() -> bool:
        return False

    task = asyncio.create_task(engine.run(healthy, lambda: True))
    await eventually(lambda: count.exists() and len(count.read_text()) >= 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert pids(engine) == []


async def test_an_engine_that_was_healthy_and_answers_no_more_is_started_anew_though_its_processes_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed_engine, "UNHEALTHY_SECONDS", 0.2)
    count = tmp_path / "starts"
    engine = make(tmp_path, ["bash", "-c", f"echo >> {count}; sleep 60"], SOON_KILLED)
    looks = 0

    async def healthy() -> bool:
        nonlocal looks
        looks += 1
        assert looks < 200, "it is still waited for"
        return looks == 1

    with capture_logs() as said:
        task = asyncio.create_task(engine.run(healthy, lambda: True))
        await eventually(lambda: task.done() or (count.exists() and len(count.read_text()) >= 2))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [line["reason"] for line in said if line["event"] == "engine.died"] == ["it did not answer any more"]


async def test_a_helper_that_left_the_group_is_found_by_its_mark(tmp_path: Path) -> None:
    engine = make(tmp_path)
    engine._command = ["bash", "-c", f"setsid sleep 600 & exec {' '.join(engine._command)}"]
    async with running(engine):
        await eventually(lambda: len(pids(engine)) == 2)
    assert pids(engine) == []


async def test_the_engine_dies_with_an_owner_that_was_killed(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert any(line == "healthy\n" for line in owner.stdout)
    engine = make(tmp_path)
    assert pids(engine)
    owner.kill()
    owner.wait()
    await eventually(lambda: pids(engine) == [])


async def test_the_next_start_kills_what_a_killed_owner_left_behind(tmp_path: Path) -> None:
    engine = make(tmp_path)
    orphan = subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"], "SLACKWATER_ENGINE": engine._mark})
    async with running(engine):
        assert orphan.pid not in pids(engine)
    assert orphan.wait(LIMIT_SECONDS) == -signal.SIGKILL


async def test_our_settings_and_secrets_are_not_handed_to_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACKWATER_SECRET_KEY", "hush")
    engine = make(tmp_path)
    async with running(engine):
        [pid] = pids(engine)
        environment = Path(f"/proc/{pid}/environ").read_text()
    assert "hush" not in environment
    assert "VLLM_NO_USAGE_STATS=1" in environment
    assert "HF_HUB_OFFLINE=1" in environment
    assert "VLLM_MEDIA_URL_ALLOW_REDIRECTS=0" in environment


def test_an_engine_may_fetch_media_of_the_hosts_of_its_model_only(tmp_path: Path) -> None:
    model = catalogue.load(Settings().models_file).models["smollm2-135m-instruct"]
    for hosts, named in (((), ["none.invalid"]), (("a.example", "b.example"), ["a.example", "b.example"])):
        command = vllm_command(replace(model, media_hosts=hosts), tmp_path, 1)
        begin = command.index("--allowed-media-domains") + 1
        assert command[begin : begin + len(named)] == named
        assert command[begin + len(named)].startswith("--")


async def test_an_engine_has_a_key_of_its_own_that_no_argument_shows(tmp_path: Path) -> None:
    engine, other = make(tmp_path), sharing(tmp_path, "engine-1")
    async with running(engine):
        [pid] = pids(engine)
        folder = Path(f"/proc/{pid}")
        variables = dict(line.split("=", 1) for line in (folder / "environ").read_text().split("\0") if "=" in line)
        key = variables["VLLM_API_KEY"]
        assert len(key) == 64
        assert key not in (folder / "cmdline").read_text()
        assert key == engine_key(engine._settings, secret_key(engine._settings), "engine-0", "managed")
    assert other._environment()["VLLM_API_KEY"] != key
    assert f"--middleware {MIDDLEWARE}" in " ".join(ManagedEngine(engine._settings, engine._model)._command)


@pytest.mark.parametrize("path", ["/v1/models", "/invocations", "/tokenize", "/version", "/health/x", "/metrics/", "/"])
async def test_all_paths_but_two_need_the_key(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv(VARIABLE_OF_KEY, "secret")
    reached = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["path"])

    async def send(message: Any) -> None:
        sent.append(message.get("status"))

    sent: list[Any] = []
    check = KeyCheck(inner)
    for each in (path, "/health", "/metrics"):
        await check({"type": "http", "path": each, "headers": [(b"authorization", b"Bearer wrong")]}, send, send)
    assert (reached, sent[:1]) == (["/health", "/metrics"], [401])
    await check({"type": "http", "path": path, "headers": [(b"authorization", b"Bearer secret")]}, send, send)
    assert reached[-1] == path


def test_a_model_without_a_launch_table_has_no_engine_of_our_own(tmp_path: Path) -> None:
    model = make(tmp_path)._model
    with pytest.raises(
        catalogue.CatalogueError, match=r"has no \[launch\] table; attach an engine with SLACKWATER_ENG"
    ):
        ManagedEngine(Settings(data_dir=tmp_path), replace(model, launch=None))


def test_vllm_is_started_with_priorities_cached_token_counts_and_the_catalogues_flags(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    model = catalogue.load(settings.models_file).resolve(MODEL)
    assert model is not None
    command = " ".join(vllm_command(model, tmp_path, 8123))
    for part in (
        "-m vllm.entrypoints.openai.api_server",
        "--host 127.0.0.1 --port 8123",
        "--scheduling-policy priority",
        "--enable-prompt-tokens-details",
        f"--served-model-name {MODEL}",
        "--max-num-batched-tokens 256",
        f"--model {tmp_path}/models/{MODEL}",
    ):
        assert part in command
