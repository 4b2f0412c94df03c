"""Claims about `/metrics`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from psycopg import OperationalError
from psycopg.errors import QueryCanceled
from pydantic import SecretStr

from app.api import queue_gauges
from app.api.app import create_app
from app.api.metrics import MEANINGS
from app.db.pool import Database
from app.metering import ledger
from app.queue import overview
from app.settings import Settings
from tests.api.support import SUBMIT


async def scraped(client: httpx.AsyncClient) -> dict[tuple[str, str], float]:
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    return {
        (sample.name.removeprefix("slackwater_"), next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.name.startswith("slackwater_")
    }


async def test_the_queues_alarms_are_metrics(client: httpx.AsyncClient, database: Database) -> None:
    await client.post(SUBMIT, json={"requests": [{"prompt": "hi"}]})
    async with database.durable() as conn:
        await conn.execute(
            "insert into batch_delta (batch_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens)"
            " values (1, 0, 0, 0, 0, 0)"
        )
        await conn.execute("update sched set drifts = 2")
    await client.put("/client/v4/accounts/acme/ai/budgets/b", json={"max_tokens": 1000})
    async with database.durable() as conn:
        await conn.execute("update chunk set budgets = '{1}', maximum_cost = 1000, reserved_cost = 500")
        await conn.execute("update batch_delta set at = now() - interval '1 minute'")
        await ledger.note_check(conn, 7)
    found = await scraped(client)
    page = (await client.get("/metrics")).text
    assert [name for name in MEANINGS if f"# TYPE slackwater_{name} " not in page] == []
    assert found["database_up", ""] == 1
    assert found["partitions_ahead_seconds", ""] >= 86_400
    assert found["fold_lag_deltas", ""] == 1
    assert 60 <= found["fold_lag_seconds", ""] < 600
    assert found["ledger_drift", ""] == 7
    assert found["cache_drifts_total", ""] == 2
    assert found["open_batches", ""] == 1
    assert found["ready_chunks", "smollm2-135m-instruct"] == 1
    assert 0 < found["oldest_ready_seconds", ""] < 60
    assert ("dead_tuples", "chunk") in found


async def test_a_long_snapshot_shows(client: httpx.AsyncClient, database: Database) -> None:
    async with database.transaction() as conn:
        await conn.execute("set transaction isolation level repeatable read")
        await conn.execute("select pg_sleep(0.2) from batch union all select pg_sleep(0.2)")
        found = await scraped(client)
    assert found["oldest_snapshot_seconds", ""] >= 0.2


@pytest.mark.parametrize(
    ("error", "up", "kept"),
    [(OperationalError("lost"), 0, False), (TimeoutError(), 1, True), (QueryCanceled(), 1, True)],
)
async def test_only_a_lost_database_is_down_and_a_slow_one_leaves_what_was_known_for_a_minute(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, error: Exception, up: int, *, kept: bool
) -> None:
    now = 1000.0
    monkeypatch.setattr("app.api.queue_gauges.clock.monotonic", lambda: now)
    await scraped(client)

    async def failing(conn: object) -> None:
        raise error

    monkeypatch.setattr("app.queue.overview.gauges", failing)
    now += 30
    found = await scraped(client)
    assert (found["database_up", ""], ("open_batches", "") in found) == (up, kept)
    assert found.get(("gauges_age_seconds", "")) == (30 if kept else None)
    now += 30
    found = await scraped(client)
    assert (found["database_up", ""], ("open_batches", "") in found) == (up, False)


@contextlib.asynccontextmanager
async def served(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(settings)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://api") as client,
    ):
        yield client


async def test_a_hundred_scrapes_are_one_look_at_the_database_and_the_next_comes_seconds_later(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, real, now = 0, overview.gauges, 1000.0

    async def counted(conn: object) -> object:
        nonlocal count
        count += 1
        return await real(conn)  # type: ignore[arg-type]

    monkeypatch.setattr(overview, "gauges", counted)
    monkeypatch.setattr("app.api.queue_gauges.clock.monotonic", lambda: now)
    await asyncio.gather(*(scraped(client) for _ in range(100)))
    assert count == 1
    now += queue_gauges.FRESH_SECONDS
    assert (await scraped(client))["database_up", ""] == 1
    assert count == 2


async def test_a_scrape_takes_no_connection_that_callers_wait_for(settings: Settings, key: str) -> None:
    async with served(settings.model_copy(update={"database_pool_size": 2})) as client:
        database = client._transport.app.state.parts.database  # type: ignore[attr-defined]
        async with database.relaxed(), database.durable():
            assert (await scraped(client))["database_up", ""] == 1


async def test_with_a_token_only_its_bearer_sees_the_metrics(settings: Settings) -> None:
    async with served(settings.model_copy(update={"metrics_token": SecretStr("tökén")})) as client:
        for headers in ({}, {"authorization": "Bearer other"}):
            refused = await client.get("/metrics", headers=headers)
            assert refused.status_code == 401
            assert "SLACKWATER_METRICS_TOKEN" in refused.json()["errors"][0]["message"]
        sent = {"authorization": "Bearer tökén".encode("latin-1")}
        assert (await client.get("/metrics", headers=sent)).status_code == 200
