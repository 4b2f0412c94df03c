"""Claims about a flex call that waits for long: its client hears something each second, and a repeated one joins it."""

import asyncio

import httpx
import psycopg
import pytest

from app.batches.why_chain import Polls
from app.db.pool import Database
from testing.waiting import LIMIT_SECONDS, eventually
from tests.api.support import MODEL, run_all
from tests.clock import Clock

URL = "/v1/chat/completions"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "service_tier": "flex"}
AGAIN = {"x-stainless-retry-count": "1"}
BLANKS = {False: b" \n", True: b": nothing yet\n\n"}


async def away(*_: object) -> None:
    raise psycopg.OperationalError("the server is away")


@pytest.mark.parametrize("stream", BLANKS)
async def test_a_call_that_waits_for_long_hears_a_blank_each_second_and_a_repeated_one_joins_it(
    client: httpx.AsyncClient, database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    """It waits through an outage of the database too."""

    async def calls() -> int:
        async with database.relaxed() as conn:
            return len(await (await conn.execute("select from batch")).fetchall())

    async def older(minutes: int) -> None:
        shift = "now() - make_interval(mins => %s)"
        async with database.durable() as conn:
            await conn.execute(f"update batch set created_at = {shift}", (minutes,))
            await conn.execute(f"update batch set finalized_at = {shift} where finalized_at is not null", (minutes,))

    body = {**CHAT, "stream": stream}
    first = asyncio.create_task(client.post(URL, json=body))
    await eventually(calls)
    await clock.sleep(5)
    with monkeypatch.context() as outage:
        outage.setattr(Polls, "why", away)
        await clock.sleep(5)
    await older(60)
    second = asyncio.create_task(client.post(URL, json=body, headers=AGAIN))
    await clock.sleep(3)
    assert await calls() == 1
    await run_all(database)
    heard = (await asyncio.wait_for(first, LIMIT_SECONDS)).content
    joined = (await asyncio.wait_for(second, LIMIT_SECONDS)).content
    assert heard.count(BLANKS[stream]) >= 8
    assert heard.replace(BLANKS[stream], b"") == joined.replace(BLANKS[stream], b"")
    assert b"Paris" in joined
    await older(14)
    assert (await client.post(URL, json=body, headers=AGAIN)).status_code == 200
    assert await calls() == 1
    await older(16)
    later = asyncio.create_task(client.post(URL, json=body, headers=AGAIN))
    await eventually(calls, until=lambda found: found == 2)
    await run_all(database)
    await asyncio.wait_for(later, LIMIT_SECONDS)
