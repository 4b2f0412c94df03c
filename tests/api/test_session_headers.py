"""Claims about the headers that name a session: every route that runs or queues a request reads both of them."""

import asyncio
from typing import Any

import httpx
import psycopg
import pytest

from app.errors import NoCapacity
from app.gateway.relay import Gateway, SyncCall
from testing.waiting import eventually
from tests.api.support import MODEL, RUN, SUBMIT, line, uploaded

HEADERS = ("x-session-affinity", "x-session-id")
SAY = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
INPUT = {"model": MODEL, "input": "hello"}
SYNCHRONOUS = {
    RUN: {"prompt": "hello"},
    "/v1/chat/completions": SAY,
    "/v1/completions": {"model": MODEL, "prompt": "hello"},
    "/v1/responses": INPUT,
}
QUEUED: list[tuple[str, dict[str, Any]]] = [
    (SUBMIT, {"requests": [{"prompt": "hello"}]}),
    ("/v1/chat/completions", {**SAY, "service_tier": "flex"}),
    ("/v1/responses", {**INPUT, "service_tier": "flex"}),
    ("/v1/responses", {**INPUT, "background": True}),
    ("/v1/batches", {"endpoint": "/v1/chat/completions", "completion_window": "24h"}),
]


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("url", SYNCHRONOUS)
async def test_a_synchronous_request_goes_to_the_engine_of_its_session(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, url: str, header: str
) -> None:
    sessions: list[str | None] = []

    async def complete(self: Gateway, call: SyncCall) -> bytes:
        sessions.append(call.session)
        raise NoCapacity("no engine in this test")

    monkeypatch.setattr(Gateway, "complete", complete)
    await client.post(url, json=SYNCHRONOUS[url], headers={header: "s1"})
    assert sessions == ["s1"]


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize(("url", "body"), QUEUED, ids=lambda value: str(value)[:60])
async def test_a_queued_request_keeps_its_session(
    client: httpx.AsyncClient, database_url: str, url: str, body: dict[str, Any], header: str
) -> None:
    if "completion_window" in body:
        body = body | {"input_file_id": await uploaded(client, line(1))}
    call = asyncio.create_task(client.post(url, json=body, headers={header: "s1"}))
    with psycopg.connect(database_url, autocommit=True) as conn:
        await eventually(lambda: call.done() or conn.execute("select 1 from batch").fetchone())
        assert conn.execute("select affinity from batch").fetchone() == ("s1",)
    call.cancel()  # a flex call would wait for its answer
    await asyncio.gather(call, return_exceptions=True)


async def test_the_header_of_cloudflare_comes_before_the_other_one(
    client: httpx.AsyncClient, database_url: str
) -> None:
    await client.post(
        SUBMIT, json={"requests": [{"prompt": "hello"}]}, headers=dict.fromkeys(HEADERS, "s2") | {HEADERS[0]: "s1"}
    )
    with psycopg.connect(database_url) as conn:
        assert conn.execute("select affinity from batch").fetchone() == ("s1",)
