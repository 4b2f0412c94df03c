"""What an operator's Prometheus sees."""

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.api.metrics import MEANINGS
from app.db.pool import Database
from tests.api.conftest import SUBMIT


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
    found = await scraped(client)
    assert {name for name, _ in found} >= {*MEANINGS, "database_up"}
    assert found["database_up", ""] == 1
    assert found["partitions_ahead_days", ""] >= 1
    assert found["fold_lag_deltas", ""] == 1
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


async def test_without_the_database_the_scrape_still_answers(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(conn: object) -> None:
        raise TimeoutError

    monkeypatch.setattr("app.queue.care.gauges", away)
    assert (await scraped(client))["database_up", ""] == 0
