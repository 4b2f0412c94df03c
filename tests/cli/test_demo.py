"""Claims about the demo: what it refuses before it starts, what it requests, and how it ends when it is stopped."""

import asyncio
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from rich.console import Console

from app.cli import demo, demo_output
from app.cli.doctor import require_engine, services
from app.cli.supervisor import Supervisor
from app.settings import DEMO_MODELS, SHIPPED_MODELS, Settings
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
    [
        (b'{"prompt": "x"}\n{broken', "line 2"),
        (b'{"a": "\xff"}', "line 1: the byte 0xff at column 8 is not UTF-8"),
        (b"[1]", "no JSON object"),
        (b"\n", "holds no requests"),
    ],
)
def test_a_broken_file_of_requests_is_named_with_its_line(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_bytes(content)
    with pytest.raises(Failure, match=said):
        demo.read_items(file)


def test_a_folder_holds_no_requests() -> None:
    with pytest.raises(IsADirectoryError):
        demo.read_items(Path("/etc"))


def plan(settings: Settings) -> demo.DemoPlan:
    return demo.DemoPlan(settings, Console(file=io.StringIO()), [{}], demo.model_name(settings))


async def test_without_a_terminal_it_says_every_few_seconds_what_it_waits_for(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def loading(settings: Settings) -> str:
        return "loading"

    monkeypatch.setattr(demo, "_engine", loading)
    monkeypatch.setattr(demo_output, "TELL_SECONDS", 0.0)
    states = iter(["queued", "running", "complete"])

    def answer(request: httpx.Request) -> httpx.Response:
        state = next(states)
        progress = {"succeeded": int(state == "running"), "failed": 0}
        return httpx.Response(200, json={"success": True, "result": {"status": state, "progress": progress}})

    shown = io.StringIO()
    piped = replace(plan(settings), console=Console(file=shown, width=200), items=[{}, {}])
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://demo") as client:
        await demo._poll(piped, client, "/run", "id")
    told = [line for line in shown.getvalue().splitlines() if ": the batch is" in line]
    assert [line.partition(": ")[2] for line in told] == [
        "the batch is queued, the engine is loading; 0 of 2 are done",
        "the batch is running; 1 of 2 are done",
    ]


def test_the_preparation_of_the_model_is_told_without_places_in_the_code(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(settings: Settings, model: object, report: Callable[[str], None]) -> None:
        report("model: ready in /data")

    monkeypatch.setattr(demo.weights, "prepare", prepare)
    shown = io.StringIO()
    asyncio.run(demo._prepare(replace(plan(settings), console=Console(file=shown, width=80))))
    assert shown.getvalue().splitlines()[-1].strip() == "model: ready in /data"


def test_the_demo_asks_for_a_name_of_workers_ai_and_says_which_model_answers(settings: Settings) -> None:
    of_workers_ai = plan(settings.model_copy(update={"models_file": DEMO_MODELS}))
    assert (of_workers_ai.model, of_workers_ai.answered_by) == (demo.MODEL, "smollm2-135m-instruct")
    own = plan(settings.model_copy(update={"models_file": SHIPPED_MODELS}))
    assert (own.model, own.answered_by) == ("smollm2-135m-instruct", "")


def test_the_demo_asks_for_what_the_engine_serves_where_that_is_another_model(
    settings: Settings, tmp_path: Path
) -> None:
    other = tmp_path / "models.toml"
    other.write_text(DEMO_MODELS.read_text() + "[models.other-model]\ncontext_window = 128\n")
    changed = settings.model_copy(update={"models_file": other, "engine_model": "other-model"})
    assert demo.model_name(changed) == "other-model"


@pytest.mark.parametrize(("show_all", "rows"), [(False, [0, 1, 2, 3, 4, 7]), (True, list(range(8)))])
def test_a_few_answers_are_shown_and_every_failed_one(show_all: bool, rows: list[int]) -> None:
    console = Console(file=io.StringIO(), record=True, width=100)
    items = [{"prompt": f"question {number}"} for number in range(8)]
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 0}}
    responses = [{"id": number, "success": True, "result": {"response": "yes"}} for number in range(7)]
    failed = {"id": 7, "success": False, "error": {"message": "no"}}
    with pytest.raises(Failure, match="1 of the demo's requests failed"):
        demo.demo_output.answers(console, items, {"responses": [*responses, failed], "usage": usage}, show_all=show_all)
    text = console.export_text()
    assert [number for number in range(8) if f"question {number}" in text] == rows
    assert ("--all" in text) is not show_all


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
