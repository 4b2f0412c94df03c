"""Prompts that exceed the context window are refused by an exact count, or their items end with both numbers."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.batches.intake import prompt_length
from app.db.pool import Database
from app.engines.catalogue import load
from app.settings import DEMO_MODELS
from testing.fakes.engine import FakeEngine
from tests.api.support import RUN, SUBMIT
from tests.gateway.support import Registry

MODEL = "smollm2-135m-instruct"
WINDOW = load(DEMO_MODELS).models[MODEL].context_window
USUAL = 256  # tokens of an answer where nothing is asked


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[FakeEngine]:
    """A ready engine, in which every word is a token."""
    async with FakeEngine() as engine:
        engine.window = WINDOW
        await Registry(database).ready(engine)
        yield engine


def words(count: int) -> str:
    return " ".join(["four"] * count)


async def submitted(client: httpx.AsyncClient, *items: dict[str, Any]) -> tuple[int, str]:
    answer = await client.post(SUBMIT, json={"requests": items})
    return answer.status_code, "".join(error["message"] for error in answer.json()["errors"])


async def test_a_prompt_one_token_too_long_is_refused_with_both_numbers_and_one_less_is_taken(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    fits = WINDOW - USUAL - 1  # the message itself counts one
    ask = [{"prompt": "hi"}, {"messages": [{"role": "user", "content": words(fits + 1)}]}]
    assert await submitted(client, *ask) == (
        400,
        f"requests[1].messages: the prompt has {WINDOW - USUAL + 1} tokens, and {USUAL} are asked for the answer: "
        f"together beyond the context window of {WINDOW}",
    )
    assert (await submitted(client, {"prompt": words(fits)}))[0] == 200
    assert (await submitted(client, {"prompt": words(fits), "max_tokens": USUAL + 1}))[0] == 400


async def test_an_engine_with_a_larger_window_does_not_stretch_the_models(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    engine.window = 2 * WINDOW
    status, said = await submitted(client, {"prompt": words(WINDOW)})
    assert (status, said.endswith(f"beyond the context window of {WINDOW}")) == (400, True)
    assert (await submitted(client, {"prompt": words(WINDOW - USUAL - 1)}))[0] == 200


async def test_lines_are_refused_by_their_number(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    body = "\n".join(json.dumps({"prompt": text}) for text in ("hi", words(WINDOW)))
    answer = await client.post(SUBMIT, content=body, headers={"content-type": "application/x-ndjson"})
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["message"].startswith("line 2 (requests[1]).prompt: the prompt has")


async def test_ordinary_prompts_are_not_counted_and_of_many_long_ones_only_some(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    assert (await submitted(client, *[{"prompt": words(1000)}] * 50))[0] == 200
    assert engine.tokenized == []
    assert (await submitted(client, *[{"prompt": words(WINDOW - USUAL - 1)}] * 50))[0] == 200
    assert len(engine.tokenized) == prompt_length.MOST_COUNTED


async def test_without_a_ready_engine_or_with_one_that_has_just_gone_the_batch_is_taken(
    client: httpx.AsyncClient, database: Database
) -> None:
    assert (await submitted(client, {"prompt": words(WINDOW)}))[0] == 200
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
    assert (await submitted(client, {"prompt": words(WINDOW)}))[0] == 200


async def test_an_engine_that_never_finishes_counting_does_not_block_a_submit(
    client: httpx.AsyncClient, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(prompt_length, "_SECONDS", 0.05)
    monkeypatch.setattr("app.engines.client.EngineClient.count", hang)
    assert (await submitted(client, {"prompt": words(WINDOW)}))[0] == 200


async def test_a_background_response_and_a_flex_call_are_refused_too(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    respond = {"model": MODEL, "input": words(WINDOW), "background": True}
    chat = {"model": MODEL, "messages": [{"role": "user", "content": words(WINDOW)}], "service_tier": "flex"}
    for path, body, param in (("responses", respond, "input"), ("chat/completions", chat, "messages")):
        answer = await client.post(f"/v1/{path}", json=body)
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert (error["code"], error["param"]) == ("context_length_exceeded", param)
        assert f"beyond the context window of {WINDOW}" in error["message"]


async def test_a_synchronous_caller_gets_the_engines_refusal_with_openais_code(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    said = f"This model's maximum context length is {WINDOW} tokens. However, your prompt contains 9000 input tokens"
    engine.script({"mode": "status", "status": 400, "message": said})
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
    error = (await client.post("/v1/chat/completions", json=body)).json()["error"]
    assert (error["code"], error["message"]) == ("context_length_exceeded", said)
    assert (await client.post(RUN, json={"prompt": "hi"})).status_code == 400
