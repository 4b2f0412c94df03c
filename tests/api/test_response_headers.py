"""Claims about the ids of requests in headers."""

import uuid

import httpx
import orjson
import pytest

from app.db.pool import Database
from testing.fakes.engine import FakeEngine
from tests.api.support import RUN, SUBMIT
from tests.gateway.support import Registry


@pytest.mark.parametrize("name", ["x-request-id", "cf-ai-req-id"])
async def test_a_callers_id_comes_back_under_both_names_on_errors_too(client: httpx.AsyncClient, name: str) -> None:
    answer = await client.post(RUN, json={}, headers={name: "abc-1"})
    assert answer.status_code == 400
    assert (answer.headers["x-request-id"], answer.headers["cf-ai-req-id"]) == ("abc-1", "abc-1")


@pytest.mark.parametrize("given", ["a b", "x" * 512, "ab/c:1=~"])
async def test_a_callers_id_is_kept_if_it_is_printable(client: httpx.AsyncClient, given: str) -> None:
    answer = await client.get("/health", headers={"x-request-id": given, "cf-ai-req-id": "x" * 513})
    assert (answer.headers["x-request-id"], "x-slackwater-warning" in answer.headers) == (given, False)


@pytest.mark.parametrize("given", [b"", "é".encode(), b"x" * 513])
async def test_without_a_usable_id_one_is_made_and_that_of_the_caller_is_said_to_be_none(
    client: httpx.AsyncClient, given: bytes
) -> None:
    answer = await client.get("/health", headers={"x-request-id": given} if given else {})  # type: ignore[dict-item]
    assert uuid.UUID(answer.headers["x-request-id"])
    told = answer.headers.get("x-slackwater-warning", "")
    assert told == ("x-request-id: not used, since it is not 1 to 512 printable characters of ASCII" if given else "")


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def test_a_submits_trace_stands_at_the_batch_and_at_its_event(
    client: httpx.AsyncClient, database: Database
) -> None:
    answer = await client.post(SUBMIT, json={"requests": [{"prompt": "a"}]}, headers={"traceparent": TRACE})
    assert answer.status_code == 200
    async with database.durable() as conn:
        rows = await (
            await conn.execute("select b.traceparent, e.data from batch b join event e using (batch_id)")
        ).fetchall()
    [(kept, data)] = rows
    assert (kept, orjson.loads(data)["traceparent"]) == (TRACE, TRACE)


async def test_a_synchronous_requests_trace_reaches_the_engine_under_its_own_id(
    client: httpx.AsyncClient, database: Database
) -> None:
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        for headers in ({"traceparent": TRACE}, {"traceparent": "broken"}, {}):
            await client.post(RUN, json={"prompt": "a"}, headers=headers)
    first, *others = engine.traces
    assert first is not None
    assert first[:36] == TRACE[:36]
    assert first != TRACE
    assert others == [None, None]
