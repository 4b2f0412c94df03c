"""Claims about single queued requests under a budget that is used up: a flex call is refused, a background response waits."""

import asyncio

import httpx
import orjson
import pytest

from app.budgets.queued import reserve
from app.db.pool import Database
from app.engines import catalogue
from app.engines.catalogue import Catalogue
from app.settings import Settings
from testing.waiting import LIMIT_SECONDS, eventually
from tests.api.support import BATCHES, SUBMIT, run_all
from tests.clock import Clock
from tests.queue.support import serve_all

BUDGET = "/client/v4/accounts/acme/ai/budgets/b"
CHAT = {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
FLEX = {**CHAT, "service_tier": "flex"}


@pytest.fixture
def models(settings: Settings) -> Catalogue:
    return catalogue.load(settings.models_file)


async def budget(client: httpx.AsyncClient, database: Database, *, spent: int = 0, reserved: int = 0) -> None:
    """A budget of 1,000 tokens."""
    assert (await client.put(BUDGET, json={"max_tokens": 1000})).status_code == 200
    async with database.durable() as conn:
        await conn.execute("update budget set spent = %s, reserved = %s", (spent, reserved))


async def queued(database: Database, count: int = 1) -> None:
    """Wait until so many batches are queued."""

    async def batches() -> int:
        async with database.relaxed() as conn:
            [(found,)] = await (await conn.execute("select count(*) from batch")).fetchall()
        return int(found)

    await eventually(batches, until=lambda found: found >= count)
    await serve_all(database)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_flex_call_gets_429_at_once_if_the_money_of_this_window_is_spent(
    client: httpx.AsyncClient, database: Database, stream: bool
) -> None:
    await budget(client, database, spent=995)
    refused = await client.post("/v1/chat/completions", json={**FLEX, "stream": stream})
    assert refused.status_code == 429, refused.text
    assert refused.json()["error"]["code"] == "insufficient_quota"
    assert "Budget 'b' has too little left" in refused.json()["error"]["message"]
    assert refused.headers["x-should-retry"] == "false"
    async with database.relaxed() as conn:
        assert await (await conn.execute("select from batch")).fetchall() == []


@pytest.mark.parametrize("stream", [False, True])
async def test_a_flex_call_whose_money_is_spent_while_it_waits_is_refused_and_does_not_run(
    client: httpx.AsyncClient, database: Database, models: Catalogue, clock: Clock, stream: bool
) -> None:
    await budget(client, database, reserved=1000)
    call = asyncio.create_task(client.post("/v1/chat/completions", json={**FLEX, "stream": stream}))
    await queued(database)
    assert await reserve(database, models) == 0
    await clock.sleep(2)
    assert not call.done()  # what is reserved may return
    async with database.durable() as conn:
        await conn.execute("update budget set spent = 1000, reserved = 0")
    assert await reserve(database, models) == 0
    answer = await asyncio.wait_for(call, LIMIT_SECONDS)
    assert "Budget 'b' is used up" in answer.text
    await run_all(database)
    async with database.relaxed() as conn:
        assert await (await conn.execute("select state, ok from batch")).fetchall() == [("cancelled", 0)]


async def test_a_flex_call_that_finds_money_is_answered(
    client: httpx.AsyncClient, database: Database, models: Catalogue
) -> None:
    await budget(client, database)
    call = asyncio.create_task(client.post("/v1/chat/completions", json=FLEX))
    await queued(database)
    assert await reserve(database, models) == 1
    await run_all(database)
    answer = await asyncio.wait_for(call, LIMIT_SECONDS)
    assert orjson.loads(answer.content)["choices"]


async def test_a_flex_call_behind_a_batch_that_needs_more_than_is_left_stays_and_then_runs(
    client: httpx.AsyncClient, database: Database, models: Catalogue, clock: Clock
) -> None:
    await budget(client, database, spent=10)
    made = await client.post(SUBMIT, json={"requests": [{"prompt": "hello", "max_tokens": 500}] * 20})
    async with database.durable() as conn:  # its time is nearly over, so it stands before the call
        await conn.execute("update chunk set deadline = now() + interval '1 minute'")
    call = asyncio.create_task(client.post("/v1/chat/completions", json=FLEX))
    await queued(database, 2)
    await clock.sleep(2)
    assert not call.done()
    await client.post(f"{BATCHES}/{made.json()['result']['request_id']}/cancel")
    assert await reserve(database, models) == 1
    await run_all(database)
    answer = await asyncio.wait_for(call, LIMIT_SECONDS)
    assert orjson.loads(answer.content)["choices"]


async def test_a_background_response_waits_for_the_next_window(
    client: httpx.AsyncClient, database: Database, models: Catalogue
) -> None:
    await budget(client, database, spent=1000)
    body = {"model": CHAT["model"], "input": "hello", "max_output_tokens": 8, "background": True}
    made = await client.post("/v1/responses", json=body)
    assert made.status_code == 200, made.text
    assert made.json()["status"] == "queued"
    await serve_all(database)
    assert await reserve(database, models) == 0
    async with database.durable() as conn:
        await conn.execute("update budget set spent = 0")
    assert await reserve(database, models) == 1
