"""Claims about the limits of a key per minute; they never refuse a queued request."""

import asyncio
import re
from collections.abc import AsyncIterator

import httpx
import pytest

from app.crypto import secret_key
from app.db.pool import Database
from app.settings import Settings
from app.tenants import rate_limits
from app.tenants import service as tenants
from app.tenants.key_scope import KeyLimits
from testing.fakes.engine import FakeEngine
from tests.api.support import RUN, SUBMIT
from tests.gateway.support import Registry

pytestmark = pytest.mark.usefixtures("one_minute")
SAY = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 10}


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        yield engine


async def key(settings: Settings, database: Database, limit: KeyLimits) -> dict[str, str]:
    async with database.transaction() as conn:
        made = await tenants.create_key(conn, secret_key(settings), "acme", "limited", None, limit)
    return {"authorization": f"Bearer {made}"}


async def test_beyond_a_keys_requests_a_minute_comes_429_with_3021_and_when_to_try_again(
    client: httpx.AsyncClient, engine: FakeEngine, settings: Settings, database: Database
) -> None:
    headers = await key(settings, database, KeyLimits(requests=2))
    first, second, third = [await client.post(RUN, json=SAY, headers=headers) for _ in range(3)]
    assert [first.status_code, second.status_code, third.status_code] == [200, 200, 429]
    assert third.json()["errors"][0]["code"] == 3021
    assert 1 <= int(third.headers["retry-after"]) <= 60
    assert first.headers["ratelimit-policy"] == '"requests";q=2;w=60'
    assert re.fullmatch(r'"requests";r=1;t=\d+', first.headers["ratelimit"])
    assert third.headers["ratelimit"].startswith('"requests";r=0;')
    assert engine.count.total() == 2
    queued = await client.post(SUBMIT, json={"requests": [SAY]}, headers=headers)
    assert queued.status_code == 200


async def test_tokens_are_counted_as_estimated_and_a_refused_request_counts_nothing(
    client: httpx.AsyncClient, engine: FakeEngine, settings: Settings, database: Database
) -> None:
    headers = await key(settings, database, KeyLimits(tokens=50))
    assert (await client.post(RUN, json=SAY, headers=headers)).status_code == 200
    large = await client.post(RUN, json=SAY | {"max_tokens": 100}, headers=headers)
    assert large.status_code == 429
    assert "send a smaller one, or queue it" in large.json()["errors"][0]["message"]
    assert (await client.post(RUN, json=SAY, headers=headers)).status_code == 200
    last = await client.post(RUN, json=SAY, headers=headers)
    assert "50 tokens a minute reached by this key" in last.json()["errors"][0]["message"]


async def test_a_key_without_limits_of_its_own_has_those_of_the_settings_and_without_any_no_headers(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    answer = await client.post(RUN, json=SAY)
    assert answer.status_code == 200
    assert "ratelimit" not in answer.headers


async def test_all_processes_count_together(settings: Settings, database: Database) -> None:
    headers = await key(settings, database, KeyLimits(requests=10))
    key_id = headers["authorization"].split("_")[2]

    async def take() -> bool:
        async with database.relaxed() as conn:
            return (await rate_limits.take(conn, key_id, KeyLimits(requests=10), 5)).granted

    assert sum(await asyncio.gather(*(take() for _ in range(40)))) == 10


async def test_a_new_minute_begins_at_nothing(settings: Settings, database: Database) -> None:
    headers = await key(settings, database, KeyLimits(requests=1))
    key_id = headers["authorization"].split("_")[2]
    async with database.relaxed() as conn:
        granted = [(await rate_limits.take(conn, key_id, KeyLimits(requests=1), 5)).granted for _ in range(2)]
        await conn.execute("update key_usage set minute = minute - interval '1 minute'")
        granted.append((await rate_limits.take(conn, key_id, KeyLimits(requests=1), 5)).granted)
    assert granted == [True, False, True]
