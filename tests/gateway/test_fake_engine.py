"""The fake engine streams and continues as vLLM does. The tests of the relay and the worker depend on that."""

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from testing.fakes.engine import FakeEngine

CHAT = {"model": "m", "messages": [{"role": "user", "content": "tell me a story"}]}
IDS = {"stream": True, "return_token_ids": True}


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as engine:
        engine.answer_tokens = 9
        yield engine


async def post(engine: FakeEngine, route: str, body: dict[str, Any]) -> list[Any]:
    """The events of a stream, or the one answer."""
    async with aiohttp.ClientSession() as session, session.post(engine.url + route, json=body) as answer:
        text = await answer.text()
        if answer.content_type == "application/json":
            return [json.loads(text)]
        events = text.removesuffix("\n\n").split("\n\n")
        assert events[-1] == "data: [DONE]"
        return [json.loads(event.removeprefix("data: ")) for event in events[:-1]]


def said(events: list[Any]) -> tuple[str, list[int]]:
    """Text and tokens of a stream."""
    choices = [choice for event in events for choice in event["choices"]]
    text = "".join(choice["delta"]["content"] if "delta" in choice else choice["text"] for choice in choices)
    return text, [token for choice in choices for token in choice.get("token_ids", [])]


async def test_a_stream_says_what_the_whole_answer_says(engine: FakeEngine) -> None:
    [whole] = await post(engine, "/v1/chat/completions", CHAT)
    events = await post(
        engine, "/v1/chat/completions", {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    )
    assert said(events)[0] == whole["choices"][0]["message"]["content"] == "echo: tell me a story"
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert (events[-1]["choices"], events[-1]["usage"]) == ([], whole["usage"])
    assert "token_ids" not in events[1]["choices"][0]


@pytest.mark.parametrize("cut", range(1, 9))
@pytest.mark.parametrize("chunk", [1, 3])
async def test_a_continuation_from_the_tokens_gives_the_rest(engine: FakeEngine, cut: int, chunk: int) -> None:
    engine.chunk_tokens = chunk
    events = await post(engine, "/v1/chat/completions", {**CHAT, **IDS})
    text, tokens = said(events)
    prompt = events[0]["prompt_token_ids"]
    rest = {"model": "m", "prompt": prompt + tokens[:cut], "max_tokens": 9 - cut, **IDS}
    events = await post(engine, "/v1/completions", rest)
    assert said(events)[1] == tokens[cut:]
    assert events[0]["choices"][0]["prompt_token_ids"] == prompt + tokens[:cut]
    [whole] = await post(engine, "/detokenize", {"tokens": prompt + tokens})
    [begin] = await post(engine, "/detokenize", {"tokens": tokens[:cut]})
    assert whole["prompt"] == "tell me a story" + text
    assert begin["prompt"] + said(events)[0] == text
    assert engine.resumed["tell me a story"] == 1


async def test_tokens_that_the_engine_would_not_have_said_are_refused(engine: FakeEngine) -> None:
    events = await post(engine, "/v1/chat/completions", {**CHAT, **IDS})
    prompt, tokens = events[0]["prompt_token_ids"], said(events)[1]
    for wrong in (tokens[1:3], [tokens[0], tokens[0]], tokens):
        [answer] = await post(engine, "/v1/completions", {"prompt": prompt + wrong, **IDS})
        assert answer["error"]["type"] == "BadRequestError"


async def test_max_tokens_cuts_a_stream_with_finish_reason_length(engine: FakeEngine) -> None:
    events = await post(engine, "/v1/chat/completions", {**CHAT, **IDS, "max_tokens": 3})
    assert len(said(events)[1]) == 3
    assert events[-1]["choices"][0]["finish_reason"] == "length"


async def test_a_stream_that_dies_ends_after_the_tokens_it_was_told(engine: FakeEngine) -> None:
    engine.script({"mode": "die", "after": 2})
    async with aiohttp.ClientSession() as session:
        answer = await session.post(f"{engine.url}/v1/chat/completions", json={**CHAT, "stream": True})
        raw = b""
        with pytest.raises(aiohttp.ClientPayloadError):
            async for block in answer.content.iter_any():
                raw += block
    assert raw.count(b"data: ") == 3
