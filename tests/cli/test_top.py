"""Claims about `slackwater top`: what a frame shows, at two widths, and what it does without a key, an engine or an API."""

import asyncio
import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from app import clock
from app.batches.phases import PhaseLog
from app.cli import status, top, top_view
from app.cli.client import Client
from app.cli.top_view import Sight
from app.db.pool import Database
from app.engines import service as engines
from app.headroom import samples
from app.settings import Settings
from app.tenants import service as tenants
from app.user_errors import Failure
from tests.cli.support import Run
from tests.headroom.test_samples import SAMPLE
from tests.queue import support

NOW = datetime(2026, 11, 22, 14, 15, tzinfo=UTC)
ENGINE = {
    "name": "east-1",
    "model": "qwen3-32b",
    "state": "ready",
    "message": "east-1 takes batch work",
    "allowance": 64,
    "batch_in_flight": 8,
    "sync_in_flight": 12,
}
STATUS: dict[str, Any] = {
    "status": "ok",
    "version": "1.0",
    "callers": {"verdict": "protected", "headline": "Synchronous callers are protected", "details": ""},
    "engines": [ENGINE | {"problems": []}],
    "queue": {
        "open_batches": 1,
        "items_queued": 1200,
        "items_claimed": 4,
        "items_in_engine": 8,
        "oldest_waiting_seconds": 90.0,
    },
    "problems": [],
}
ROW = {
    "at": "2026-11-22T14:14:55Z",
    "batch": 3.0,
    "sync": 1.0,
    "kv_usage": 0.5,
    "batch_tokens": 20_000,
    "sync_tokens": 5_000,
    "seconds": 10.0,
}
BATCH: dict[str, Any] = {
    "request_id": "2457fe16-510b-4636-923b-e2e32d7ecd98",
    "name": "nightly-tags-of-november.jsonl",
    "status": "running",
    "progress": {"total": 1000, "succeeded": 240, "failed": 10},
    "estimate": {"eta_seconds": 90.0},
}


PROTECTION = {"stretches": [{"beside": {"first_token_p95": value}} for value in (None, 0.0, 118.0)]}
SIGHT = Sight("http://x", NOW, STATUS, {"east-1": [ROW]}, [BATCH], protection=PROTECTION)


def drawn(sight: Sight, width: int = 140, height: int = 40) -> str:
    console = Console(width=width, height=height, file=io.StringIO(), record=True)
    console.print(top_view.frame(sight, width, height))
    return console.export_text()


@pytest.mark.parametrize("width", [80, 140])
def test_a_frame_fits_the_terminal_and_shows_engine_queue_batch_and_protection(width: int) -> None:
    text = drawn(SIGHT, width)
    assert max(map(len, text.splitlines())) <= width
    for shown in ("8/64", "12", "50%", "2,000", "500", "1,200 queued", "90 s", "nightly-tags"):
        assert shown in text
    assert ("250/1,000" in text) == (width == 140)
    assert ("25%" in text) == (width == 80)


def test_more_in_an_engine_than_is_allowed_is_said_to_be_from_before_the_allowance_fell() -> None:
    engine = STATUS["engines"][0] | {"batch_in_flight": 12, "allowance": 9}
    text = drawn(replace(SIGHT, status=STATUS | {"engines": [engine]}))
    assert "12→9" in text
    assert "; 12 batch requests are in it, 9 are allowed from now on" in text
    assert "allowed from now on" not in drawn(SIGHT)


def test_an_old_sample_is_not_shown_as_now() -> None:
    text = drawn(replace(SIGHT, histories={"east-1": [ROW | {"at": "2026-11-22T14:14:20Z"}]}))
    assert "8/64" in text
    assert "2,000" not in text
    assert "50%" not in text


@pytest.mark.parametrize("state", ["down", "starting"])
def test_the_memory_and_the_speed_of_an_engine_that_is_down_are_not_known(state: str) -> None:
    away = STATUS["engines"][0] | {"state": state}
    [line] = [
        each for each in drawn(replace(SIGHT, status=STATUS | {"engines": [away]})).splitlines() if "8/64" in each
    ]
    assert line.split()[4:7] == ["–", "–", "–"]


def test_a_sample_from_before_the_work_says_nothing_of_its_speed() -> None:
    before = ROW | {"batch": 0.0, "sync": 0.0, "batch_tokens": 0, "sync_tokens": 0}
    [line] = [each for each in drawn(replace(SIGHT, histories={"east-1": [before]})).splitlines() if "8/64" in each]
    assert line.split()[4:7] == ["50%", "–", "–"]


def test_callers_whose_tokens_are_not_counted_yet_have_no_speed() -> None:
    there = ROW | {"sync": 0.1, "sync_tokens": 0, "batch": 3.0, "batch_tokens": 0}
    [line] = [each for each in drawn(replace(SIGHT, histories={"east-1": [there]})).splitlines() if "8/64" in each]
    assert line.split()[5:7] == ["0", "–"]


def test_the_first_sentence_is_the_verdict_of_the_status() -> None:
    callers = {"verdict": "slowed", "headline": "Callers wait 2.4 times as long as alone", "details": "At p95: 348 ms."}
    shown = drawn(replace(SIGHT, status=STATUS | {"callers": callers})).splitlines()
    assert "Callers wait 2.4 times as long as alone. At p95: 348 ms.   ▁█" in shown[1]


def test_of_many_batches_a_small_terminal_shows_some_and_says_that_there_are_more() -> None:
    text = drawn(replace(SIGHT, batches=[BATCH] * 30), height=24)
    assert 3 <= text.count("250/1,000") <= 10
    assert "more: `slackwater batch list`" in text


def test_an_installation_without_anything_draws_a_frame_too() -> None:
    bare = STATUS | {"engines": [], "queue": dict.fromkeys(STATUS["queue"])}
    text = drawn(Sight("http://x", NOW, bare), 80)
    assert "No engine yet" in text
    assert "the database does not answer" in text


def test_a_name_is_no_markup() -> None:
    assert "[red]x" in drawn(replace(SIGHT, batches=[BATCH | {"name": "[red]x"}]))


@pytest.fixture
def work(settings: Settings, key: str) -> None:
    """Items of `acme` that wait for an engine that has done something."""

    async def make() -> None:
        async with Database.of(settings, "test") as database, database.durable() as conn:
            tenant = await tenants.find_tenant(conn, "acme")
            pool = await support.make_pool(conn)
            await support.make_engine(conn, database, pool)
            await support.submit(database, tenant, pool, 5)
            engine = await engines.id_of(conn, "e")
            assert engine is not None
            await samples.record(conn, engine, SAMPLE, clock.monotonic() - 1)
            await PhaseLog(database).look()

    asyncio.run(make())


@pytest.mark.usefixtures("work")
def test_one_frame_is_printed_from_a_real_api(run: Run) -> None:
    found = run("top", "--once")
    assert found.exit_code == 0
    for shown in ("Slackwater", "e takes batch work", "0/8", "100", "1 open batch", "next in line", "e is ready"):
        assert shown in found.output


@pytest.mark.usefixtures("work")
def test_without_a_key_a_frame_shows_the_installation_and_says_what_is_missing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLACKWATER_API_KEY")
    found = run("top", "--once")
    assert "e takes batch work" in found.output
    assert "run `slackwater login`" in " ".join(found.output.split())


def no_key() -> Client:
    raise Failure("There is no API key.", "The Ready block comes with a key.")


def test_a_key_that_comes_later_is_found_and_until_then_it_is_said_where_it_comes_from(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    known: list[Client] = []

    def connect() -> Client:
        return known[0] if known else no_key()

    monkeypatch.setattr(status, "fetch", lambda settings: STATUS)
    reader = top.Reader(Settings(), connect)
    assert reader.read().note == "Batches and histories need a key. The Ready block comes with a key."
    known.append(Client("http://127.0.0.1:9", key))
    assert "http://127.0.0.1:9 does not answer" in reader.read().note


def test_an_api_that_goes_away_leaves_the_last_frame_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [STATUS]

    def fetch(settings: Settings) -> Any:
        if not answers:
            raise Failure("The API does not answer.", "Start it.")
        return answers.pop()

    monkeypatch.setattr(status, "fetch", fetch)
    reader = top.Reader(Settings(), no_key)
    reader.read()
    assert "The API does not answer." in reader.read().note


def test_without_an_api_the_command_fails_with_a_remedy(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACKWATER_URL", "http://127.0.0.1:9")
    found = run("top", "--once")
    assert found.exit_code == 1
    assert "slackwater up" in found.output


def test_a_history_is_read_every_ten_seconds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from app.cli.client import ListPage

    asked: list[str] = []

    class Fake(Client):
        def __init__(self) -> None:
            pass

        def get(self, path: str, **params: Any) -> Any:
            asked.append(path)
            return {"samples": []} if path.endswith("history") else {} if path.endswith("protection") else []

        def page(self, path: str, **params: Any) -> ListPage:
            return ListPage([], "")

    monkeypatch.setattr(status, "fetch", lambda settings: json.loads(json.dumps(STATUS)))
    reader = top.Reader(Settings(), Fake)
    for _ in range(3):
        reader.read()
    assert asked == ["/ai/engines/east-1/history", "/ai/protection", "/ai/incidents"]
