"""Claims about calls of forbidden tools that models return: on no surface do they leave, and the audit log has each."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import orjson
import pytest

from app.audit import log
from app.batches import lifecycle
from app.db.pool import Database
from app.engines import catalogue
from app.engines.service import ensure_pool
from app.policy import service as policies
from app.queue import response_log, service
from app.queue.types import Lease, Result
from app.settings import Settings
from testing.fakes import embeddings_and_responses, tool_calls
from testing.fakes.engine import FakeEngine
from tests.api import in_process
from tests.api.support import BATCHES, MODEL, RUN, SUBMIT, frames, uploaded
from tests.gateway.support import Registry
from tests.queue import support

CALLS = [("lookup", '{"q": 1}'), ("shell", '{"planted": 1}')]
TOOLS = [{"type": "function", "function": {"name": "lookup"}}]
MESSAGES = [{"role": "user", "content": "hello"}]
CHAT = {"model": MODEL, "messages": MESSAGES, "tools": TOOLS}
RESPONSE = {"model": MODEL, "input": "hello", "tools": [{"type": "function", "name": "lookup"}]}
DENY = '[[rule]]\nid = "no-shell"\ndeny = { tools = ["shell"] }\ncontact = "ops@example.com"\n'
REFUSAL = (
    "Policy rule no-shell does not allow the tool shell; the model's call of it was withheld. Ask ops@example.com."
)
Apply = Callable[[str], Awaitable[None]]


@pytest.fixture
async def apply(database: Database, settings: Settings, client: httpx.AsyncClient) -> Apply:
    """Puts a policy in force, and lets this process read it."""

    async def put(text: str) -> None:
        async with database.transaction() as conn:
            await policies.apply(conn, text, catalogue.load(settings.models_file), "test")
        await in_process.application().state.parts.admission.policy.renew()

    return put


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[FakeEngine]:
    """A ready engine whose model calls tools, whatever it is asked."""
    async with FakeEngine() as engine:
        engine.script({"calls": CALLS})
        await Registry(database).ready(engine)
        yield engine


async def audited(database: Database) -> list[tuple[str, str, list[str]]]:
    """The rows about withheld calls: rule, outcome, correlation ids."""
    await in_process.application().state.parts.admission.audit.store()
    async with database.relaxed() as conn:
        found = await log.latest(conn)
    assert "planted" not in str(found)
    return [(each.target, each.outcome, each.correlation) for each in found if each.act == "policy.withheld"]


async def answer_all(database: Database, calls: tool_calls.Calls = CALLS, *, streams: bool = False) -> bytes:
    """Play the worker and the steward: each answer calls these tools. Returns the last of them."""
    body = b""
    async with database.durable() as conn:
        pool = await ensure_pool(conn, MODEL)
        worker = await support.make_worker(database, pool)
        while lease := await support.claim(conn, pool, worker):
            outcome = []
            items = await service.load(conn, lease)
            for item in items:
                body = await _answered(conn, lease, orjson.loads(item.body), calls, streams=streams)
                outcome.append(Result(item.seq, True, 1, 3, 1, 5, body))
            assert await service.flush(conn, lease, outcome, feeds=items[0].feeds)
            await service.finish(conn, lease)
    async with database.transaction() as conn:
        await lifecycle.settle(conn)
    return body


async def _answered(conn: Any, lease: Lease, item: dict[str, Any], calls: tool_calls.Calls, *, streams: bool) -> bytes:
    if "input" in item:
        item = {"model": MODEL, **item}
        if streams:
            events = [orjson.dumps(event) for event in embeddings_and_responses.events(item, calls)]
            assert await response_log.append_events(conn, lease, events)
        return orjson.dumps(embeddings_and_responses.response(item, calls))
    choice = {"index": 0, "message": tool_calls.message(calls), "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    whole = {"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}
    if streams:
        deltas = [{"role": "assistant"}, *tool_calls.deltas(calls)]
        chunks: list[dict[str, Any]] = [
            {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
        ]
        chunks.append({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
        chunks.append({"id": "x", "choices": [], "usage": usage})
        assert await response_log.append_events(conn, lease, [orjson.dumps(each) for each in chunks])
    return orjson.dumps(whole)


def names(message: dict[str, Any]) -> list[str]:
    return [call["function"]["name"] for call in message["tool_calls"]]


# ── at once ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_chat_loses_the_forbidden_call_and_says_by_which_rule(
    client: httpx.AsyncClient, apply: Apply, engine: FakeEngine, database: Database
) -> None:
    await apply(DENY)
    answer = await client.post("/v1/chat/completions", json=CHAT)
    [choice] = answer.json()["choices"]
    assert (names(choice["message"]), choice["message"]["refusal"]) == (["lookup"], REFUSAL)
    assert choice["finish_reason"] == "tool_calls"
    assert "planted" not in answer.text
    assert await audited(database) == [("no-shell", REFUSAL, [answer.headers["x-request-id"]])]
    metrics = (await client.get("/metrics")).text
    assert 'slackwater_tool_calls_withheld_total{rule="no-shell"}' in metrics


async def test_a_chat_that_only_makes_forbidden_calls_ends_as_filtered(
    client: httpx.AsyncClient, apply: Apply, engine: FakeEngine
) -> None:
    await apply('[[rule]]\nid = "none"\nallow = { tools = [] }\n')
    answer = await client.post("/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES})
    [choice] = answer.json()["choices"]
    assert (choice["message"]["tool_calls"], choice["finish_reason"]) == ([], "content_filter")


async def test_a_streamed_chat_never_has_a_part_of_the_forbidden_call(
    client: httpx.AsyncClient, apply: Apply, engine: FakeEngine, database: Database
) -> None:
    await apply(DENY)
    answer = await client.post("/v1/chat/completions", json=CHAT | {"stream": True})
    deltas = [frame["choices"][0]["delta"] for frame in frames(answer.text)[:-1]]
    calls = [call for delta in deltas for call in delta.get("tool_calls") or ()]
    assert "".join(call["function"].get("name", "") for call in calls) == "lookup"
    assert "".join(call["function"].get("arguments", "") for call in calls) == CALLS[0][1]
    assert [delta["refusal"] for delta in deltas if "refusal" in delta] == [REFUSAL]
    assert "planted" not in "".join(str(call) for call in calls)
    assert await audited(database) == [("no-shell", REFUSAL, [answer.headers["x-request-id"]])]


async def test_a_response_has_a_refusal_in_the_place_of_the_call_whole_and_streamed(
    client: httpx.AsyncClient, apply: Apply, engine: FakeEngine, database: Database
) -> None:
    await apply(DENY)
    whole = await client.post("/v1/responses", json=RESPONSE)
    call, refusal = whole.json()["output"]
    assert (call["name"], refusal["type"]) == ("lookup", "message")
    assert refusal["content"] == [{"type": "refusal", "refusal": REFUSAL}]
    stream = await client.post("/v1/responses", json=RESPONSE | {"stream": True})
    events = [orjson.loads(line[6:]) for line in stream.text.split("\n") if line.startswith("data: {")]
    assert events[-1]["response"]["output"] == [call, refusal]
    assert [event["item"]["type"] for event in events if event.get("output_index") == 1] == ["message", "message"]
    assert "planted" not in whole.text + stream.text
    rows = await audited(database)
    assert sum(len(ids) for _, _, ids in rows) == 2


async def test_workers_ai_shapes_have_the_refusal_too(
    client: httpx.AsyncClient, apply: Apply, engine: FakeEngine
) -> None:
    await apply(DENY)
    asked = {"messages": MESSAGES, "tools": TOOLS}
    whole = await client.post(RUN, json=asked)
    result = whole.json()["result"]
    assert (result["tool_calls"], result["refusal"]) == ([{"name": "lookup", "arguments": {"q": 1}}], REFUSAL)
    stream = await client.post(RUN, json=asked | {"stream": True})
    assert {"refusal": REFUSAL} in frames(stream.text)
    assert "planted" not in whole.text + stream.text


async def test_a_rule_that_only_watches_or_is_about_others_withholds_nothing(
    client: httpx.AsyncClient, apply: Apply, engine: FakeEngine, database: Database
) -> None:
    await apply(DENY + "observe = true\n" + DENY.replace("no-shell", "others") + 'when = { account = "other" }\n')
    answer = await client.post("/v1/chat/completions", json=CHAT)
    assert names(answer.json()["choices"][0]["message"]) == ["lookup", "shell"]
    assert await audited(database) == []


# ── through the queue ────────────────────────────────────────────────────────────────────────────────────────


async def test_results_of_a_batch_lose_forbidden_calls_however_they_are_read_and_the_stored_answer_stays(
    client: httpx.AsyncClient, apply: Apply, database: Database
) -> None:
    await apply(DENY)
    sent = await client.post(SUBMIT, json={"requests": [{"messages": MESSAGES, "tools": TOOLS}]})
    request_id = sent.json()["result"]["request_id"]
    await apply("")  # a batch keeps what was decided at its arrival
    stored = await answer_all(database)
    poll = await client.post(RUN, params={"queueRequest": "true"}, json={"request_id": request_id})
    [response] = poll.json()["result"]["responses"]
    assert [call["name"] for call in response["result"]["tool_calls"]] == ["lookup"]
    assert response["result"]["refusal"] == REFUSAL
    lines = await client.get(f"{BATCHES}/{request_id}/results")
    assert orjson.loads(lines.text.splitlines()[0])["result"] == response["result"]
    assert "planted" not in poll.text + lines.text
    rows = await audited(database)
    assert all(request_id in ids for _, _, ids in rows)
    assert {rule for rule, _, _ in rows} == {"no-shell"}
    async with database.relaxed() as conn:
        row = await (await conn.execute("select body from item_result")).fetchone()
    assert row is not None
    assert bytes(row[0]) == stored


async def test_an_output_file_has_no_forbidden_call_and_its_size_is_that_of_what_is_read(
    client: httpx.AsyncClient, apply: Apply, database: Database
) -> None:
    await apply(DENY)
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": CHAT}
    file = await uploaded(client, orjson.dumps(line) + b"\n")
    asked = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = (await client.post("/v1/batches", json=asked)).json()
    await answer_all(database)
    output = (await client.get(f"/v1/batches/{batch['id']}")).json()["output_file_id"]
    content = await client.get(f"/v1/files/{output}/content")
    body = orjson.loads(content.text)["response"]["body"]
    assert names(body["choices"][0]["message"]) == ["lookup"]
    assert "planted" not in content.text
    assert (await client.get(f"/v1/files/{output}")).json()["bytes"] == len(content.content)


async def test_items_under_different_terms_are_told_apart_by_the_tools_that_they_offer(
    client: httpx.AsyncClient, apply: Apply, database: Database
) -> None:
    await apply(DENY.replace("deny", 'when = { end_user = "guest" }\ndeny'))
    shell = {"type": "function", "function": {"name": "shell"}}
    items = [{"messages": MESSAGES, "tools": TOOLS, "user": "guest"}, {"messages": MESSAGES, "tools": [*TOOLS, shell]}]
    sent = await client.post(SUBMIT, json={"requests": items})
    await answer_all(database)
    asked = {"request_id": sent.json()["result"]["request_id"]}
    poll = await client.post(RUN, params={"queueRequest": "true"}, json=asked)
    found = [[call["name"] for call in each["result"]["tool_calls"]] for each in poll.json()["result"]["responses"]]
    assert found == [["lookup"], ["lookup", "shell"]]


async def test_a_background_response_is_without_the_call_when_it_is_fetched_followed_and_resumed(
    client: httpx.AsyncClient, apply: Apply, database: Database
) -> None:
    await apply(DENY)
    made = await client.post("/v1/responses", json=RESPONSE | {"background": True, "stream": False, "metadata": {}})
    await answer_all(database)
    fetched = await client.get(f"/v1/responses/{made.json()['id']}")
    assert fetched.json()["output"][1]["content"][0]["refusal"] == REFUSAL
    assert "planted" not in fetched.text


async def answered(database: Database, sending: Awaitable[httpx.Response]) -> httpx.Response:
    """The answer to a request that its client waits for, while the worker streams it."""
    answer = asyncio.ensure_future(sending)
    while not answer.done():
        await answer_all(database, streams=True)
        await asyncio.sleep(0.01)
    return await answer


async def test_events_of_a_background_response_are_withheld_from_any_number_on(
    client: httpx.AsyncClient, apply: Apply, database: Database
) -> None:
    await apply(DENY)
    sent = await answered(database, client.post("/v1/responses", json=RESPONSE | {"background": True, "stream": True}))
    whole = events_of(sent)
    assert [event["item"]["type"] for event in whole if event.get("output_index") == 1] == ["message", "message"]
    assert whole[-1]["response"]["output"][1]["content"][0]["refusal"] == REFUSAL
    path = f"/v1/responses/{whole[0]['response']['id']}?stream=true"
    for number in (-1, 3, whole[-1]["sequence_number"] - 1):
        rest = [event for event in whole if event["sequence_number"] > number]
        assert events_of(await client.get(f"{path}&starting_after={number}")) == rest


@pytest.mark.parametrize(("route", "body"), [("chat/completions", CHAT), ("responses", RESPONSE)])
async def test_a_flex_call_loses_the_forbidden_call_whole_and_streamed(
    client: httpx.AsyncClient, apply: Apply, database: Database, route: str, body: dict[str, Any]
) -> None:
    await apply(DENY)
    for streamed in (False, True):
        asked = body | {"service_tier": "flex", "stream": streamed}
        answer = await answered(database, client.post(f"/v1/{route}", json=asked))
        assert REFUSAL in answer.text
        assert "lookup" in answer.text
        assert "planted" not in answer.text
    assert sum(len(ids) for _, _, ids in await audited(database)) >= 2


def events_of(answer: httpx.Response) -> list[Any]:
    assert "planted" not in answer.text
    return [orjson.loads(line[6:]) for line in answer.text.split("\n") if line.startswith("data: ")]
