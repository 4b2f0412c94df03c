"""`GET /status`: public, cheap, without secrets, and true about engines."""

import asyncio

import httpx
import pytest

from app.db.pool import Database
from app.engines import overview as engine_overview
from app.engines.adoption import EngineProblem
from app.engines.engine_report import Facts
from testing.fakes.engine import FakeEngine
from tests.gateway.support import Registry
from tests.queue import support

SLOW = EngineProblem("no_priority_scheduling", "It is fcfs.", "Mend it.")
FACTS = Facts("org/m", ("org/m",), 4096, "0.32.0", "fcfs", problems=(SLOW,))


@pytest.fixture
def anybody(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """A caller without a key."""
    del client.headers["authorization"]
    return client


async def test_the_status_is_public_and_shows_engines_without_their_addresses(
    anybody: httpx.AsyncClient, database: Database
) -> None:
    async with FakeEngine() as engine:
        engine_id, worker_id = await Registry(database).ready(engine, arrival_url="http://secret.example")
        async with database.durable() as conn:
            assert await support.report_engine(
                conn, engine_id, worker_id, ready=True, reason="open", allowance=7, facts=FACTS
            )
        answer = await anybody.get("/status")
    assert answer.status_code == 200
    found = answer.json()
    assert (found["status"], found["parts"]["database"], found["parts"]["workers"]) == ("degraded", "ok", 1)
    [told] = found["engines"]
    expected = {
        "name": "engine-0",
        "model": engine.model,
        "serves": ["org/m"],
        "max_model_len": 4096,
        "version": "0.32.0",
        "scheduling_policy": "fcfs",
        "mode": "attached",
        "state": "ready",
        "reason": "open",
        "slots": 256,
        "allowance": 7,
        "protection": "outside",
    }
    assert expected.items() <= told.items()
    wrong = {"engine": "engine-0", "code": "no_priority_scheduling", "message": "It is fcfs.", "remedy": "Mend it."}
    wrong |= {"severity": "error"}
    assert [problem for problem in told["problems"] if problem["severity"] == "error"] == [wrong]
    assert wrong in found["problems"]
    assert engine.url not in answer.text
    assert "secret" not in answer.text


async def test_however_many_ask_at_once_the_database_is_asked_once(
    anybody: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, real = [], engine_overview.recent_engines

    async def counted(conn: object) -> object:
        asked.append(1)
        return await real(conn)  # type: ignore[arg-type]

    monkeypatch.setattr(engine_overview, "recent_engines", counted)
    monkeypatch.setattr("app.batches.installation_status.FRESH_SECONDS", 60)
    answers = await asyncio.gather(*(anybody.get("/status") for _ in range(8)))
    assert len(asked) == 1
    assert len({answer.text for answer in answers}) == 1
