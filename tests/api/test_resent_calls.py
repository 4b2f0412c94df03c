"""Claims about synchronous calls that a client sends again, as Cloudflare's TypeScript SDK does after 60 seconds."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.db.pool import Database
from app.gateway import resent_requests
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually
from tests.api.support import RUN
from tests.gateway.support import Registry

CHAT = "/v1/chat/completions"
SAY = {"messages": [{"role": "user", "content": "hello"}]}
ASKED = [(RUN, SAY), (CHAT, SAY | {"model": "smollm2-135m-instruct"})]
FIRST, AGAIN = {"x-stainless-retry-count": "0"}, {"x-stainless-retry-count": "1"}
KEYED = {"idempotency-key": "k"}


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        engine.latency = 1
        yield engine


async def begun(
    client: httpx.AsyncClient, engine: FakeEngine, url: str, body: Any, headers: Any
) -> "asyncio.Task[Any]":
    """A call that the engine has."""
    before = engine.count.total()
    call = asyncio.create_task(client.post(url, json=body, headers=headers))
    await eventually(lambda: engine.count.total() != before)
    return call


async def hung_up(call: "asyncio.Task[Any]") -> None:
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


@pytest.mark.parametrize(("first", "again"), [(FIRST, AGAIN), (KEYED, KEYED), (KEYED | FIRST, KEYED | AGAIN)])
@pytest.mark.parametrize(("url", "body"), ASKED)
async def test_a_call_that_is_sent_again_is_answered_by_the_one_under_way(
    client: httpx.AsyncClient, engine: FakeEngine, url: str, body: Any, first: Any, again: Any
) -> None:
    await hung_up(await begun(client, engine, url, body, first))
    answer = await client.post(url, json=body, headers=again)
    assert (answer.status_code, engine.count.total()) == (200, 1)


async def test_both_are_answered_where_the_first_caller_has_not_gone(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    call = await begun(client, engine, RUN, SAY, FIRST)
    again = await client.post(RUN, json=SAY, headers=AGAIN)
    assert (await call).json()["result"] == again.json()["result"]
    assert engine.count.total() == 1


@pytest.mark.parametrize(
    ("body", "headers"),
    [(SAY, FIRST), (SAY, {}), (SAY, KEYED | AGAIN), (SAY | {"max_tokens": 5}, AGAIN), (SAY | {"stream": True}, AGAIN)],
    ids=["not sent again", "says nothing", "another key", "another body", "a stream"],
)
async def test_a_different_call_is_sent_to_the_engine(
    client: httpx.AsyncClient, engine: FakeEngine, body: Any, headers: Any
) -> None:
    call = await begun(client, engine, RUN, SAY, FIRST)
    assert (await client.post(RUN, json=body, headers=headers)).status_code == 200
    await call
    assert engine.count.total() == 2


async def test_an_abandoned_call_is_ended_soon_and_one_that_cannot_be_repeated_at_once(
    client: httpx.AsyncClient, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.latency = 600
    for headers, grace in ((FIRST, 0.1), ({}, 600)):
        monkeypatch.setattr(resent_requests, "GRACE_SECONDS", grace)
        await hung_up(await begun(client, engine, RUN, SAY, headers))
        await eventually(lambda: not engine.running)


async def test_a_call_that_failed_in_the_meantime_is_sent_again(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.latency = 0
    engine.script({"mode": "status", "status": 400, "message": "bad"})
    assert (await client.post(RUN, json=SAY, headers=FIRST)).status_code == 400
    engine.script()
    assert (await client.post(RUN, json=SAY, headers=AGAIN)).status_code == 200
