"""Claims about `slackwater up` and its supervisor, without the parts themselves."""

import asyncio
import io
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from rich.console import Console

from app import processes
from app import settings as configuration
from app.cli import address, admin, up
from app.cli import main as cli
from app.cli.supervisor import ENGINE_MARK, MARK, Supervisor
from app.db import embedded
from app.failure import Failure
from app.settings import Settings
from workers.gpu import managed


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
    ("host", "url"),
    [("0.0.0.0", "http://127.0.0.1:8700"), ("::", "http://[::1]:8700"), ("localhost", "http://localhost:8700")],
)
def test_the_api_is_reached_where_it_listens(host: str, url: str) -> None:
    assert address.base_url(Settings(host=host)) == url


async def greeted(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> tuple[str, bool]:
    """The greeting, and whether it waited for the API."""
    answers = asyncio.Event()
    monkeypatch.setattr(up, "until_ready", lambda _: answers.wait())
    console = Console(file=io.StringIO(), width=60, record=True)
    supervisor = Supervisor(settings, sys.stderr)
    supervisor.ready.set()
    greeting = asyncio.create_task(up._greet(settings, supervisor, console))
    await asyncio.sleep(0.05)
    waited = not console.export_text(clear=False)
    answers.set()
    await greeting
    return console.export_text(), waited


async def test_the_first_greeting_shows_a_key_whatever_other_accounts_have(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(admin.create_key, settings, "demo", "of the demo", 1)
    text, waited = await greeted(settings, monkeypatch)
    assert waited
    lines = [line.strip() for line in text.splitlines()]
    assert any(line.startswith("sk_sw_") and len(line) > 60 for line in lines)
    assert any(line.endswith("?queueRequest=true") and len(line) > 60 for line in lines)
    again, _ = await greeted(settings, monkeypatch)
    assert "sk_sw_" not in again


async def test_a_key_that_cannot_be_made_is_said(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = settings.model_copy(update={"database_url": "postgresql://u@127.0.0.1:1/x"})
    text, _ = await greeted(nowhere, monkeypatch)
    assert "queueRequest" in text
    assert "key.not_made" in capsys.readouterr().out


@pytest.mark.parametrize(("said", "allowed"), [(None, True), ("false", False), ("true", True)])
def test_up_allows_local_receivers_unless_told_not_to(
    monkeypatch: pytest.MonkeyPatch, said: str | None, allowed: bool
) -> None:
    ran: list[Settings] = []
    monkeypatch.setattr(up, "up", lambda settings, console: ran.append(settings))
    monkeypatch.setattr(cli.telemetry, "configure", lambda *_: None)
    monkeypatch.delenv("SLACKWATER_WEBHOOK_ALLOW_PRIVATE", raising=False)
    if said:
        monkeypatch.setenv("SLACKWATER_WEBHOOK_ALLOW_PRIVATE", said)
    configuration.load.cache_clear()
    cli.up(attach="http://gpu:8000/", port=8701)
    configuration.load.cache_clear()
    assert (ran[0].webhook_allow_private, ran[0].engine_url, ran[0].port) == (allowed, "http://gpu:8000", 8701)


async def test_parts_and_engines_that_a_killed_predecessor_left_are_killed(settings: Settings) -> None:
    assert ENGINE_MARK == managed.MARK
    folder = os.path.realpath(settings.data_dir)
    marks = [{MARK: folder}, {ENGINE_MARK: f"{folder}:{settings.engine_name}"}]
    left = [subprocess.Popen([sys.executable, "-c", "input()"], env=mark, stdin=subprocess.PIPE) for mark in marks]
    others = subprocess.Popen([sys.executable, "-c", "input()"], env={ENGINE_MARK: "/x:y"}, stdin=subprocess.PIPE)
    async with Supervisor(settings, sys.stderr)._sole_owner():
        assert [process.wait(5) for process in left] == [-9, -9]
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
    await asyncio.wait_for(began.wait(), 5)
    supervisor.stop()
    await asyncio.sleep(0)
    assert not keeper.done()
    go.set()
    await asyncio.wait_for(keeper, 5)
    assert events == ["started"]


async def test_the_stop_waits_for_the_drain(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    real = asyncio.timeout
    monkeypatch.setattr(asyncio, "timeout", lambda seconds: asked.append(seconds) or real(seconds))
    await Supervisor(settings.model_copy(update={"drain_seconds": 300}), sys.stderr)._stop_children()
    assert asked[0] > 300


def test_the_embedded_servers_wheel_is_imported_without_a_word() -> None:
    code = "from app.db import embedded; embedded._wheel()"
    done = subprocess.run([sys.executable, "-c", code], env={"PATH": "/usr/bin"}, capture_output=True, check=True)
    assert done.stderr == b""
