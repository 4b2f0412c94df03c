"""Claims about conversations: their turns, versions, locks and items, and about responses that continue others."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import orjson
import pytest
from prometheus_client import REGISTRY

from app.db.pool import Database
from app.engines import catalogue
from app.sessions import ending
from app.settings import Settings
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually
from tests.api import in_process
from tests.api.support import MODEL, frames
from tests.gateway.support import Registry


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[FakeEngine]:
    """An engine that is ready. It answers with an echo of the last text."""
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        yield engine


async def new(client: httpx.AsyncClient, **more: Any) -> str:
    made = await client.post("/v1/conversations", json=more)
    assert made.status_code == 200, made.text
    return str(made.json()["id"])


async def say(
    client: httpx.AsyncClient, text: Any, headers: dict[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    answer = await client.post("/v1/responses", json={"model": MODEL, "input": text, **more}, headers=headers)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def asked(engine: FakeEngine) -> list[str]:
    """The texts of the input of the last request that the engine got."""
    given = engine.bodies[-1]["input"]
    return [given] if isinstance(given, str) else [item["content"] for item in given]


async def items(client: httpx.AsyncClient, talk: str) -> list[str]:
    """The texts of a conversation, the first one first."""
    listed = (await client.get(f"/v1/conversations/{talk}/items?order=asc&limit=100")).json()
    return [item["content"][0]["text"] for item in listed["data"]]


async def test_a_turn_has_those_before_it_as_its_input(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    talk = await new(client, metadata={"team": "a"}, items=[{"role": "user", "content": "we speak of tides"}])
    first = await say(client, "one", conversation=talk)
    assert (first["conversation"], first["store"], first["previous_response_id"]) == ({"id": talk}, True, None)
    second = await say(client, "two", conversation={"id": talk})
    assert asked(engine) == ["we speak of tides", "one", "echo: one", "two"]
    assert await items(client, talk) == ["we speak of tides", "one", "echo: one", "two", "echo: two"]
    assert (await client.get(f"/v1/responses/{second['id']}")).json() == second
    assert (await client.get(f"/v1/conversations/{talk}")).headers["etag"] == '"3"'


async def test_a_stream_ends_once_its_turn_is_stored(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    talk = await new(client)
    body = {"model": MODEL, "input": "one", "conversation": talk, "stream": True}
    async with client.stream("POST", "/v1/responses", json=body) as answer:
        assert answer.status_code == 200
        text = "".join([part async for part in answer.aiter_text()])
    events = frames("\n".join(line for line in text.split("\n") if line.startswith("data: ")))
    responses = [event["response"] for event in events if "response" in event]
    assert len({response["id"] for response in responses}) == 1
    assert all((response["store"], response["conversation"]) == (True, {"id": talk}) for response in responses)
    assert (await client.get(f"/v1/responses/{responses[-1]['id']}")).json() == responses[-1]
    await say(client, "two", conversation=talk)
    assert asked(engine) == ["one", "echo: one", "two"]


async def test_responses_that_continue_one_another_are_a_tree(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    root = await say(client, "root")
    left = await say(client, "left", previous_response_id=root["id"])
    await say(client, "right", previous_response_id=root["id"])
    assert asked(engine) == ["root", "echo: root", "right"]
    await say(client, "leaf", previous_response_id=left["id"], instructions="Be brief.")
    assert asked(engine) == ["root", "echo: root", "left", "echo: left", "leaf"]
    given = (await client.get(f"/v1/responses/{left['id']}/input_items")).json()["data"]
    assert [item["content"][0]["text"] for item in given] == ["left"]
    assert (await client.delete(f"/v1/responses/{root['id']}")).json()["deleted"]
    for name in (root["id"], left["id"], "resp_1", f"resp_{32 * '0'}"):
        ask = {"model": MODEL, "input": "more", "previous_response_id": name}
        refused = await client.post("/v1/responses", json=ask)
        assert (refused.status_code, refused.json()["error"]["param"]) == (404, "previous_response_id")


async def test_what_is_not_to_be_stored_is_not(
    client: httpx.AsyncClient, engine: FakeEngine, settings: Settings
) -> None:
    unstored = await say(client, "one", store=False)
    assert unstored["store"] is False
    assert (await client.get(f"/v1/responses/{unstored['id']}")).status_code == 404
    parts = in_process.application().state.parts
    turned = parts.settings.model_copy(update={"store_responses": "off"})
    object.__setattr__(parts, "settings", turned)
    assert ((await say(client, "one"))["store"], (await say(client, "one", store=True))["store"]) == (False, True)


async def test_a_version_that_has_moved_on_and_bad_requests_are_refused(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    talk = await new(client)
    first = await say(client, "one", {"if-match": '"0"'}, conversation=talk)
    ask = {"model": MODEL, "input": "two", "conversation": talk}
    moved = await client.post("/v1/responses", json=ask, headers={"if-match": '"0"'})
    assert (moved.status_code, "at version 1" in moved.text) == (412, True)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"previous_response_id": first["id"]}, "previous_response_id"),
        ({"store": False}, "store"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"input": []}, "input"),
        ({"conversation": 7}, "conversation"),
    ]
    for more, param in wrong:
        refused = await client.post("/v1/responses", json={**ask, **more})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), refused.text
    assert (await client.post("/v1/responses", json={**ask, "conversation": "conv_1"})).status_code == 404
    assert await items(client, talk) == ["one", "echo: one"]


async def test_a_turn_that_is_sent_again_with_its_key_gives_the_same_answer(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    talk, key = await new(client), {"idempotency-key": "k1"}
    first = await say(client, "one", key, conversation=talk)
    assert await say(client, "one", key, conversation=talk) == first
    other = await client.post(
        "/v1/responses", json={"model": MODEL, "input": "else", "conversation": talk}, headers=key
    )
    assert (other.status_code, len(engine.bodies)) == (422, 1)


def counted(result: str) -> float:
    """How many turns have ended so, by the metrics of this process."""
    return REGISTRY.get_sample_value("slackwater_turns_total", {"result": result}) or 0.0


async def test_only_one_turn_runs_and_others_wait_or_are_refused(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    talk, cancelled = await new(client), counted("cancelled")
    engine.script({"match": "slow", "mode": "hang"})
    ask = {"model": MODEL, "conversation": talk}
    slow = asyncio.create_task(client.post("/v1/responses", json={**ask, "input": "slow"}))
    await eventually(lambda: engine.bodies)
    parts = in_process.application().state.parts
    object.__setattr__(parts, "settings", parts.settings.model_copy(update={"line_seconds": 0.2}))
    locked = await client.post("/v1/responses", json={**ask, "input": "two"})
    assert (locked.status_code, locked.json()["error"]["code"]) == (400, "conversation_locked")
    assert (await client.delete(f"/v1/conversations/{talk}")).status_code == 409
    slow.cancel()
    await asyncio.wait([slow])
    object.__setattr__(parts, "settings", parts.settings.model_copy(update={"line_seconds": 20}))
    assert (await say(client, "three", conversation=talk))["status"] == "completed"
    assert await items(client, talk) == ["three", "echo: three"]
    assert counted("cancelled") == cancelled + 1


async def test_a_turn_whose_process_is_gone_has_failed(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database
) -> None:
    talk = await new(client)
    await say(client, "one", conversation=talk)
    taken = "update session set turn_id = %s, lease_until = now() - interval '1 second'"
    columns = "turn_id, tenant_id, session_id, n, state, input"
    row = f"insert into turn ({columns}) select %s, tenant_id, session_id, 2, 'running', '[]' from session"
    async with database.durable() as conn:
        await conn.execute(taken, [32 * "1"])
        await conn.execute(row.encode(), [32 * "1"])
    failed = counted("failed")
    await say(client, "two", conversation=talk)
    assert counted("failed") == failed + 1
    async with database.durable() as conn:
        states = await (await conn.execute("select state from turn order by n")).fetchall()
    assert [state for (state,) in states] == ["done", "failed", "done"]
    assert asked(engine) == ["one", "echo: one", "two"]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_comes_after_its_turn_was_given_up_is_refused_and_not_stored(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    talk, end = await new(client), ending.end

    async def late(*given: Any, **more: Any) -> None:
        monkeypatch.setattr(ending, "end", end)
        async with database.durable() as conn:
            await conn.execute("update session set lease_until = now() - interval '1 second'")
        await say(client, "two", conversation=talk)
        await end(*given, **more)

    monkeypatch.setattr(ending, "end", late)
    ask = {"model": MODEL, "input": "one", "conversation": talk, "stream": stream}
    refused = await client.post("/v1/responses", json=ask)
    assert "given up before its answer came" in refused.text
    assert (refused.status_code, "response.completed" in refused.text) == (200 if stream else 503, False)
    assert await items(client, talk) == ["two", "echo: two"]


async def test_deleted_items_responses_and_conversations_are_gone(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database
) -> None:
    talk = await new(client, items=[{"role": "user", "content": "a secret"}])
    told = await say(client, "one", conversation=talk)
    listed = (await client.get(f"/v1/conversations/{talk}/items?order=asc")).json()["data"]
    item = f"/v1/conversations/{talk}/items/{listed[0]['id']}"
    assert (await client.get(item)).json() == listed[0]
    assert ((await client.delete(item)).status_code, (await client.get(item)).status_code) == (200, 404)
    await say(client, "two", conversation=talk)
    assert asked(engine) == ["one", "echo: one", "two"]
    assert (await client.delete(f"/v1/responses/{told['id']}")).status_code == 200
    assert await items(client, talk) == ["two", "echo: two"]
    assert (await client.delete(f"/v1/conversations/{talk}")).json()["deleted"]
    assert (await client.get(f"/v1/conversations/{talk}")).status_code == 404
    async with database.durable() as conn:
        assert await (await conn.execute("select from turn")).fetchall() == []


async def test_a_conversation_that_fills_its_window_soon_is_told_of_once(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database, settings: Settings
) -> None:
    talk, window = await new(client), catalogue.load(settings.models_file).models[MODEL].context_window
    for text in ("one", "two"):
        await say(client, text, conversation=talk)
    async with database.durable() as conn:
        await conn.execute(
            "update turn set prompt_tokens = (n - 3) * %s", (window,)
        )  # so the next one is as much longer
    for text in ("three", "four"):
        await say(client, text, conversation=talk)
    async with database.durable() as conn:
        rows = await (await conn.execute("select data from event where kind = 'conversation.filling'")).fetchall()
    [data] = [orjson.loads(row[0]) for row in rows]
    assert (data["conversation"], data["turns"]) == (talk, 1)
    assert data["slope"] == pytest.approx(window, rel=0.01)
