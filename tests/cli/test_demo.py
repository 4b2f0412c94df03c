"""Claims about the demo: what it refuses before it starts, what it requests, and how it ends when it is stopped."""

import asyncio
import io
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from rich.console import Console

from app.cli import demo
from app.cli.doctor import require_engine, services
from app.cli.supervisor import Supervisor
from app.settings import Settings
from app.user_errors import Failure
from testing.waiting import LIMIT_SECONDS


class FakeSupervisor:
    """Runs until it is told to stop, or fails at once."""

    def __init__(self, failure: Failure | None = None) -> None:
        self.stopping = asyncio.Event()
        self.failure = failure
        self.ended = False

    def stop(self) -> None:
        self.stopping.set()

    async def run(self) -> None:
        if self.failure:
            raise self.failure
        await self.stopping.wait()
        self.ended = True


async def attended(supervisor: FakeSupervisor, watch: Any) -> None:
    await asyncio.wait_for(demo.attended(cast(Supervisor, supervisor), watch), LIMIT_SECONDS)


async def test_a_demo_that_is_stopped_says_so_and_lets_its_watcher_clean_up() -> None:
    supervisor, cleaned = FakeSupervisor(), asyncio.Event()

    async def watch() -> None:
        try:
            supervisor.stop()
            await asyncio.sleep(0)
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    with pytest.raises(Failure, match="was stopped"):
        await attended(supervisor, watch())
    assert cleaned.is_set()
    assert supervisor.ended


async def test_a_demo_that_cannot_start_says_why() -> None:
    with pytest.raises(Failure, match="already running"):
        await attended(FakeSupervisor(Failure("already running")), asyncio.Event().wait())


async def test_a_watcher_that_fails_stops_everything() -> None:
    async def watch() -> None:
        raise httpx.ConnectError("gone")

    supervisor = FakeSupervisor()
    with pytest.raises(httpx.ConnectError):
        await attended(supervisor, watch())
    assert supervisor.ended


async def test_a_watcher_that_is_through_ends_the_demo() -> None:
    supervisor = FakeSupervisor()
    await attended(supervisor, asyncio.sleep(0))
    assert supervisor.ended


@pytest.mark.parametrize(
    ("content", "said"),
    [(b'{"prompt": "x"}\n{broken', "line 2"), (b"[1]", "no JSON object"), (b"\n", "holds no requests")],
)
def test_a_broken_file_of_requests_is_named_with_its_line(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_bytes(content)
    with pytest.raises(Failure, match=said):
        demo.read_items(file)


def test_a_folder_holds_no_requests() -> None:
    with pytest.raises(IsADirectoryError):
        demo.read_items(Path("/etc"))


def test_the_demo_asks_for_a_model_that_the_engine_serves(settings: Settings, tmp_path: Path) -> None:
    assert demo.model_name(settings) == demo.MODEL
    other = tmp_path / "models.toml"
    own = settings.models_file.read_text().replace("smollm2-135m-instruct", "other-model")
    kimi = own.index('[models."@cf/moonshotai')
    other.write_text(settings.models_file.read_text() + "\n" + own[:kimi].replace("HuggingFaceTB/", "x/"))
    changed = settings.model_copy(update={"models_file": other, "engine_model": "other-model"})
    assert demo.model_name(changed) == "other-model"


def test_what_keeps_an_engine_from_starting_is_said_at_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "find_spec", lambda _: None)
    with pytest.raises(Failure, match="vLLM is not installed") as failure:
        require_engine(settings)
    assert "--attach" in failure.value.remedy
    attached = settings.model_copy(update={"engine_url": "http://127.0.0.1:1"})
    assert require_engine(attached) == attached  # `up` waits for it
    with pytest.raises(Failure, match="does not answer"):
        require_engine(attached, answering=True)


def test_a_finished_demo_ends_in_the_time_table(settings: Settings) -> None:
    console = Console(file=io.StringIO(), record=True)
    stages = demo.demo_output.StageTimes()
    stages.done("submit")
    demo.demo_output.times(console, stages, Path("/tmp/[/x].log"))
    text = console.export_text()
    assert "submit" in text
    assert "/tmp/[/x].log" in text
