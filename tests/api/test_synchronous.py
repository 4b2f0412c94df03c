"""Synchronous requests through the API: shapes, streams, refusals, and the unchanged openai client."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest

from app.db.pool import Database
from app.settings import Settings
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually
from tests.api import in_process
from tests.api.support import RUN, frames
from tests.gateway.support import Registry, serve

CHAT = "/client/v4/accounts/acme/ai/v1/chat/completions"
KIMI = RUN.replace("smollm2-135m-instruct", "@cf/moonshotai/kimi-k2.6")
SAY = {"messages": [{"role": "user", "content": "hello"}]}
MODEL = {"model": "smollm2-135m-instruct"}


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[FakeEngine]:
    """An engine that a live worker has reported ready."""
    async with FakeEngine() as engine:
        engine.answer_tokens = 6
        await Registry(database).ready(engine)
        yield engine


async def test_a_native_model_answers_in_the_envelope_in_workers_ais_shape(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    answer = await client.post(RUN, json=SAY)
    body = answer.json()
    assert answer.status_code == 200
    assert (body["success"], body["errors"], body["messages"]) == (True, [], [])
    assert body["result"]["response"] == "echo: hello"
    assert body["result"]["usage"]["completion_tokens"] == 6


async def test_each_of_many_callers_at_once_gets_the_answer_to_its_own_request(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    async def answer(n: int) -> str:
        body = {**MODEL, "messages": [{"role": "user", "content": f"question {n}"}], "stream": bool(n % 2)}
        said = await client.post("/v1/chat/completions", json=body)
        if not body["stream"]:
            return str(said.json()["choices"][0]["message"]["content"])
        choices = [choice for event in frames(said.text)[:-1] for choice in event["choices"]]
        return "".join(choice["delta"].get("content") or "" for choice in choices)

    engine.script({"match": "question", "mode": "slow", "seconds": 0.05, "tokens": 8})
    assert await asyncio.gather(*map(answer, range(40))) == [f"echo: question {n}" for n in range(40)]


async def test_a_newer_model_answers_a_whole_chat_completion(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    result = (await client.post(KIMI, json=SAY)).json()["result"]
    assert result["choices"][0]["message"]["content"] == "echo: hello"


async def test_the_generic_route_takes_the_model_from_the_body(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    answer = await client.post("/client/v4/accounts/acme/ai/run", json={**MODEL, **SAY})
    assert answer.json()["result"]["response"] == "echo: hello"


async def test_json_mode_answers_an_object(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    said = {"choices": [{"message": {"content": '{"a": 1}'}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    engine.script({"mode": "junk", "body": json.dumps(said)})
    answer = await client.post(RUN, json={**SAY, "response_format": {"type": "json_object"}})
    assert answer.json()["result"]["response"] == {"a": 1}


async def test_the_engine_gets_priority_0_the_tenants_salt_and_none_of_our_fields(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    await client.post(RUN, json={**SAY, "session_id": "s", "external_reference": "r", "temperature": 0})
    [body] = engine.bodies
    assert (body["priority"], body["stream"], body["temperature"], body["max_tokens"]) == (0, False, 0, 256)
    assert len(body["cache_salt"]) == 43
    assert not {"session_id", "external_reference"} & body.keys()


async def test_a_native_stream_has_workers_ais_frames_with_usage_at_the_end(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    answer = await client.post(RUN, json={**SAY, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *said, finish, usage, done = frames(answer.text)
    assert "".join(frame["response"] for frame in said) == "echo: hello"
    assert finish == {"finish_reason": "stop"}
    assert (usage["response"], usage["usage"]["completion_tokens"], done) == ("", 6, "[DONE]")


async def test_parallel_calls_that_an_engine_sends_under_one_index_or_none_arrive_apart(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    for given in ({}, {"index": 0}):
        calls = [{**given, "id": name, "function": {"name": name, "arguments": "{}"}} for name in "ab"]
        chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]} for call in calls]
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
        sent = "".join(f"data: {json.dumps(each)}\n\n" for each in (*chunks, end)) + "data: [DONE]\n\n"
        engine.script({"mode": "status", "status": 200, "type": "text/event-stream", "body": sent})
        for url in (CHAT, RUN):
            said = frames((await client.post(url, json={**MODEL, **SAY, "stream": True})).text)[:2]
            deltas = [frame["choices"][0]["delta"] if url == CHAT else frame for frame in said]
            assert [delta["tool_calls"] for delta in deltas] == [[{**call, "index": i}] for i, call in enumerate(calls)]


async def test_a_raw_prompt_streams_too(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    answer = await client.post(RUN, json={"prompt": "hi", "raw": True, "stream": True})
    assert "".join(frame.get("response", "") for frame in frames(answer.text)[:-1]) == "echo: hi"
    assert engine.bodies[0]["prompt"] == "hi"


@pytest.mark.parametrize("asked", [True, False])
async def test_an_openai_stream_has_the_usage_only_if_asked_for(
    client: httpx.AsyncClient, engine: FakeEngine, asked: bool
) -> None:
    options = {"stream_options": {"include_usage": True}} if asked else {}
    answer = await client.post(CHAT, json={**MODEL, **SAY, **options, "stream": True})
    *events, done = frames(answer.text)
    assert done == "[DONE]"
    assert any(event["choices"] == [] for event in events) is asked
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}


async def test_an_engines_refusal_reaches_the_caller_in_the_envelope(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    for stream in (False, True):
        engine.script({"mode": "status", "status": 400, "message": "too long for me"})
        answer = await client.post(RUN, json={**SAY, "stream": stream})
        [error] = answer.json()["errors"]
        assert (answer.status_code, error) == (400, {"code": 5006, "message": "too long for me"})


async def test_an_error_in_front_of_the_first_token_of_a_stream_has_a_status_of_its_own(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    engine.script({"mode": "error", "message": "no memory"})
    answer = await client.post(CHAT, json={**MODEL, **SAY, "stream": True})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (500, 5001)
    assert "no memory" in answer.text


@pytest.mark.parametrize("mode", ["die", "error"])
@pytest.mark.parametrize("url", [RUN, CHAT])
async def test_a_stream_that_breaks_off_ends_in_an_error_and_without_done(
    client: httpx.AsyncClient, engine: FakeEngine, url: str, mode: str
) -> None:
    engine.script({"mode": mode, "after": 2})
    answer = await client.post(url, json={**MODEL, **SAY, "stream": True})
    *said, error = frames(answer.text)
    assert answer.status_code == 200
    assert len(said) >= 2
    assert error["errors"][0]["code"] == 5001
    assert ("error" in error) == (url == CHAT), "Workers AI's own routes have no field of OpenAI's"
    assert error.get("error", {"code": "server_error"})["code"] == "server_error"


async def test_without_an_engine_the_answer_is_503_with_code_3040_and_when_to_try_again(
    client: httpx.AsyncClient,
) -> None:
    for url in (RUN, CHAT):
        answer = await client.post(url, json={**MODEL, **SAY})
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (503, 3040)
        assert (answer.headers["retry-after"], answer.headers["x-should-retry"]) == ("10", "true")


async def test_a_busy_engine_is_429_with_code_3040(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.script({"mode": "status", "status": 503})
    answer = await client.post(RUN, json=SAY)
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (429, 3040)
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("url", "body", "word"),
    [
        (RUN, {"temperature": 1}, "prompt and messages"),
        (RUN, {**SAY, "stream": "yes"}, "stream"),
        (RUN, {**SAY, "priority": -5}, "priority"),
        (RUN, {**SAY, "n": 2}, "one choice"),
        (CHAT, SAY, "model"),
        (CHAT, {**MODEL, "prompt": "x"}, "messages"),
        (CHAT, {**MODEL, **SAY, "max_tokens": 0}, "max_tokens"),
        (
            CHAT,
            {**MODEL, **SAY, "service_tier": "wow"},
            "service_tier: must be one of auto, default, flex, priority, scale",
        ),
    ],
)
async def test_a_bad_request_is_refused_naming_the_field_before_any_engine_sees_it(
    client: httpx.AsyncClient, engine: FakeEngine, url: str, body: dict[str, Any], word: str
) -> None:
    answer = await client.post(url, json=body)
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (400, 5006)
    assert word in answer.text
    assert not engine.bodies


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", [{"mode": "hang"}, {"mode": "hang", "after": 2}])
async def test_a_caller_who_hangs_up_frees_the_engine(
    settings: Settings, key: str, engine: FakeEngine, stream: bool, mode: dict[str, Any]
) -> None:
    engine.script(mode)
    async with serve(settings) as url, httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}) as client:
        call = asyncio.create_task(client.post(url + RUN, json={**SAY, "stream": stream}))
        await eventually(lambda: engine.running)
        call.cancel()
        await eventually(lambda: engine.aborted and not engine.running)
        answer = await client.get(f"{url}/metrics")
    assert 'slackwater_open_requests{class="sync",model="smollm2-135m-instruct"} 0.0' in answer.text


async def test_the_openai_client_works_unchanged(settings: Settings, key: str, engine: FakeEngine) -> None:
    async with serve(settings) as url:
        client = openai.AsyncOpenAI(api_key=key, base_url=f"{url}/client/v4/accounts/acme/ai/v1", max_retries=0)
        messages: Any = SAY["messages"]
        whole = await client.chat.completions.create(model=MODEL["model"], messages=messages)
        assert whole.choices[0].message.content == "echo: hello"
        stream = await client.chat.completions.create(model=MODEL["model"], messages=messages, stream=True)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "echo: hello"
        engine.script({"mode": "die", "after": 2})
        with pytest.raises(openai.APIError, match="lost"):
            async for _ in await client.chat.completions.create(model=MODEL["model"], messages=messages, stream=True):
                pass
        await client.close()


async def test_latencies_and_errors_are_exported_by_class(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    async def total(name: str) -> float:
        text = (await client.get("/metrics")).text
        [line] = [line for line in text.splitlines() if line.startswith(name)] or ["0"]
        return float(line.split()[-1])

    labels = '{class="sync",model="smollm2-135m-instruct"}'
    refused = 'slackwater_relay_errors_total{class="sync",kind="refused",model="smollm2-135m-instruct"}'
    names = [f"slackwater_ttft_seconds_count{labels}", f"slackwater_itl_seconds_count{labels}", refused]
    before = [await total(name) for name in names]
    await client.post(RUN, json={**SAY, "stream": True})
    engine.script({"mode": "status", "status": 400})
    await client.post(RUN, json=SAY)
    after = [await total(name) for name in names]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 4, 1]


async def test_before_the_attached_engine_has_answered_no_model_is_called_unknown(
    settings: Settings, key: str, database: Database
) -> None:
    attached = settings.model_copy(update={"engine_url": "http://127.0.0.1:1"})
    call = {"model": "of-the-engine", "messages": [{"role": "user", "content": "x"}]}
    async with in_process.running(attached, key) as (app, client):
        early = await client.post("/v1/chat/completions", json=call)
        assert (early.status_code, early.headers["retry-after"]) == (503, "5")
        assert "the attached engine has not answered" in early.json()["error"]["message"]
        async with FakeEngine() as engine:
            await Registry(database).ready(engine)
        await app.state.parts.models.renew()
        late = await client.post("/v1/chat/completions", json=call)
        assert (late.status_code, late.json()["error"]["code"]) == (404, "model_not_found")
