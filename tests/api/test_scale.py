"""Claims about `GET /scale/{model}`, which autoscalers read."""

import asyncio

import httpx
import pytest
from pydantic import SecretStr

from app.batches import scale
from app.batches.scale import Demand
from app.db.pool import Connection, Database
from app.queue import pool_status
from app.settings import Settings
from app.states import ChunkState
from testing.fakes.engine import FakeEngine
from tests.api import in_process
from tests.api.support import MODEL, SUBMIT
from tests.gateway.support import Registry

SCALE = f"/scale/{MODEL}"
DAY = 86_400


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question reads what a steward has just written."""
    real = scale.read

    async def looked_at(conn: Connection, model: str) -> Demand:
        await pool_status.write(conn)
        return await real(conn, model)

    monkeypatch.setattr(scale, "FRESH_SECONDS", 0)
    monkeypatch.setattr(scale, "read", looked_at)


async def demand(client: httpx.AsyncClient, **params: str) -> dict[str, object]:
    answer = await client.get(SCALE, params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


async def submit(client: httpx.AsyncClient, items: int = 3) -> None:
    body = {"requests": [{"prompt": f"item {n}"} for n in range(items)]}
    assert (await client.post(SUBMIT, json=body)).status_code == 200


async def execute(database: Database, *statements: str) -> None:
    async with database.durable() as conn:
        for statement in statements:
            await conn.execute(statement.encode())


async def test_a_model_that_no_engine_ever_served_needs_none(client: httpx.AsyncClient) -> None:
    found = await demand(client)
    assert (found["model"], found["wanted"], found["ready"], found["deadline"]) == (MODEL, 0, 0, None)


async def test_work_asks_for_an_engine_until_it_is_done(client: httpx.AsyncClient, database: Database) -> None:
    await submit(client)
    found = await demand(client)
    assert found["wanted"] == 1
    assert isinstance(found["tokens_due"], int)
    assert found["tokens_due"] > 0
    assert found["deadline"]
    await execute(database, "delete from chunk")
    assert (await demand(client))["wanted"] == 0


@pytest.mark.parametrize("state", [state for state in ChunkState if state != ChunkState.UNRESERVED])
async def test_only_work_that_may_run_asks_for_engines(
    client: httpx.AsyncClient, database: Database, state: ChunkState
) -> None:
    if state == ChunkState.GONE:
        return
    await submit(client)
    leased = "worker_id = 1" if state == ChunkState.LEASED else "worker_id = null"
    delayed = "not_before = now()" if state == ChunkState.DELAYED else "not_before = null"
    await execute(database, f"update chunk set state = '{state}', {leased}, {delayed}")
    may_run = state in (ChunkState.READY, ChunkState.LEASED, ChunkState.DELAYED)
    assert (await demand(client))["wanted"] == int(may_run)


async def test_engines_are_counted_by_the_measured_pace_of_one_engine_and_the_time_until_the_deadline(
    client: httpx.AsyncClient, database: Database
) -> None:
    await submit(client)
    async with FakeEngine() as one, FakeEngine() as other:
        for n, each in enumerate((one, other)):
            await Registry(database).ready(each, f"engine-{n}")
        await execute(
            database,
            "update engine set batch_in_flight = 4",
            "insert into pace (pool_id, served_tokens, tokens_per_second) select pool_id, 1, 200 from pool",
            "update chunk set n = 1, done = 0, est_tokens = 1000000, deadline = now() + interval '2000 seconds'",
        )
        found = await demand(client, start_seconds="0")
        assert (found["ready"], found["tokens_per_second"]) == (2, 100)  # both work at that pace
        assert found["wanted"] == 6  # 10,000 engine seconds within nearly 2,000
        assert (await demand(client, start_seconds="1000"))["wanted"] == 11
        await execute(database, "delete from pace", "delete from worker")
        assert (await demand(client))["tokens_per_second"] == 100  # as last measured


async def test_a_paused_batch_asks_for_no_engine(client: httpx.AsyncClient, database: Database) -> None:
    await submit(client)
    [batch] = (await client.get("/client/v4/accounts/acme/ai/batches")).json()["result"]
    paused = await client.post(f"/client/v4/accounts/acme/ai/batches/{batch['request_id']}/pause")
    assert paused.status_code == 200
    assert (await demand(client))["wanted"] == 0


async def test_an_alias_is_the_model_and_an_unknown_one_is_refused_with_the_remedy(client: httpx.AsyncClient) -> None:
    alias = await client.get("/scale/HuggingFaceTB/SmolLM2-135M-Instruct")
    assert alias.json()["model"] == MODEL
    refused = await client.get("/scale/no/such-model")
    assert refused.status_code == 404
    assert "SLACKWATER_MODELS_FILE" in refused.text


async def test_many_questions_at_once_are_one_query(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "FRESH_SECONDS", 60)
    reads, real = 0, scale.read

    async def counted(conn: Connection, model: str) -> Demand:
        nonlocal reads
        reads += 1
        return await real(conn, model)

    monkeypatch.setattr(scale, "read", counted)
    await asyncio.gather(*(demand(client) for _ in range(20)))
    assert reads == 1


async def test_without_the_database_the_last_answer_holds_for_a_minute_and_then_it_is_not_known(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submit(client)
    now = 1000.0
    monkeypatch.setattr("app.batches.scale.clock.monotonic", lambda: now)
    assert (await demand(client))["wanted"] == 1

    async def away(conn: Connection, model: str) -> Demand:
        raise TimeoutError

    monkeypatch.setattr(scale, "read", away)
    now += scale.STALE_SECONDS - 1
    assert (await demand(client))["wanted"] == 1
    now += 1
    answer = await client.get(SCALE)
    assert answer.status_code == 503
    assert "keep those that there are" in answer.text


async def test_it_takes_the_token_of_metrics_where_one_is_set(settings: Settings, key: str) -> None:
    async with in_process.running(settings.model_copy(update={"metrics_token": SecretStr("t")}), key) as (_, client):
        refused = await client.get(SCALE, headers={"authorization": "Bearer other"})
        assert refused.status_code == 401
        assert "SLACKWATER_METRICS_TOKEN" in refused.text
        assert (await client.get(SCALE, headers={"authorization": "Bearer t"})).status_code == 200


async def test_what_no_steward_has_looked_at_for_a_minute_is_not_known(
    client: httpx.AsyncClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submit(client)
    assert (await demand(client))["wanted"] == 1

    async def nobody(conn: Connection) -> None:
        """No steward runs."""

    monkeypatch.setattr(pool_status, "write", nobody)
    await execute(database, "update pool_status set at = now() - interval '59 seconds'")
    assert (await demand(client))["wanted"] == 1
    await execute(database, "update pool_status set at = now() - interval '61 seconds'")
    answer = await client.get(SCALE)
    assert answer.status_code == 503
    assert "steward" in answer.text
    assert "keep those that there are" in answer.text
    await execute(database, "delete from pool_status")
    assert (await client.get(SCALE)).status_code == 503
