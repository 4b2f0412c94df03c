"""Answers of shapes that no engine should send: each has a meaning, none raises."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any

import aiohttp
import orjson
import pytest

from app.engines.answer_shape import read_event
from app.engines.answer_streams import read_events, read_transcript
from app.engines.client import EngineClient
from app.engines.continuation import Continuation
from app.engines.outcome import (
    UNREADABLE,
    Done,
    ErrorClass,
    Outcome,
    Reject,
    Retry,
    from_response,
    from_stream_error,
)
from app.engines.requests import CHAT, EngineRequest, Target, build
from app.gateway.sse_frames import SseEvent, echoed, native, openai, priced, responses
from testing.fakes.engine import FakeEngine


class Raw(str):
    """JSON as it stands."""


def nested(levels: int) -> Raw:
    return Raw("[" * levels + "1" + "]" * levels)


ODD: list[Any] = [None, True, -1, 1.5, "x", [], ["x"], {}, {"a": 1}, [[1]], [{}], [{"function": "x"}], nested(300)]
CALL = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}
WHOLE: list[dict[str, Any]] = [
    {
        "id": "c",
        "choices": [{"index": 0, "message": {"content": "a", "tool_calls": [CALL]}, "finish_reason": "stop"}],
        "usage": USAGE,
    },
    {"choices": [{"text": "a", "finish_reason": "stop"}]},
    {"output": [{"type": "message", "content": [{"text": "a"}]}], "status": "completed", "usage": {"input_tokens": 1}},
    {"data": [{"index": 0, "embedding": [0.5]}], "usage": {"prompt_tokens": 1}},
    {"error": {"message": "no", "code": 403, "param": "x"}},
]
DELTA = {"content": "a", "reasoning": "b", "tool_calls": [CALL]}
CHOICE = {"index": 0, "delta": DELTA, "finish_reason": "stop", "logprobs": {"content": [1]}, "token_ids": [1]}
EVENTS: list[dict[str, Any]] = [
    {"id": "c", "choices": [CHOICE], "usage": USAGE, "prompt_token_ids": [1]},
    {"type": "response.output_text.delta", "delta": "a"},
    {"type": "response.completed", "response": WHOLE[2]},
    {"type": "error", "error": {"message": "no", "code": 403}},
    {"type": "response.failed", "response": {"error": {"message": "no"}}},
]


def changed(value: Any) -> Iterator[Any]:
    """The value with an odd one in each of its places, one at a time."""
    yield from ODD
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        for inner in changed(value[key]):
            made = deepcopy(value)
            made[key] = inner
            yield made


def arriving(*events: Any) -> aiohttp.StreamReader:
    reader = aiohttp.StreamReader(aiohttp.base_protocol.BaseProtocol(asyncio.get_running_loop()), 2**20)
    reader.feed_data(b"".join(b"data: " + written(event) + b"\n\n" for event in events) + b"data: [DONE]\n\n")
    reader.feed_eof()
    return reader


def written(value: Any) -> bytes:
    """JSON. Neither encoder writes what is nested so deeply."""
    if isinstance(value, Raw):
        return value.encode()
    if isinstance(value, dict):
        return b"{%b}" % b", ".join(b"%b: %b" % (orjson.dumps(key), written(inner)) for key, inner in value.items())
    return b"[%b]" % b", ".join(map(written, value)) if isinstance(value, list) else orjson.dumps(value)


@pytest.mark.parametrize("answer", WHOLE)
def test_every_shape_of_an_answer_has_a_meaning(answer: dict[str, Any]) -> None:
    for shape in changed(answer):
        for status in (200, 400, 500):
            assert isinstance(from_response(status, written(shape)), Outcome)


@pytest.mark.parametrize("event", EVENTS)
async def test_every_shape_of_an_event_has_a_meaning_whole_followed_and_continued(event: dict[str, Any]) -> None:
    request = build({"messages": [{"role": "user", "content": "hi"}]}, CHAT, Target("m", 6, 100), "salt")
    for shape in changed(event):
        transcript = Continuation(request, 100)
        transcript.call()
        for reading in (
            read_events(arriving(shape), lambda _: None, begun=False, prompt_tokens=1),
            read_transcript(arriving(shape), transcript, lambda: None),
        ):
            with suppress(UNREADABLE):  # the client gives it its meaning
                assert isinstance(await reading, Outcome | None)


def test_every_shape_of_an_event_that_callers_get_can_be_shown_to_them() -> None:
    for event in EVENTS:
        for shape in changed(event):
            try:
                found, _ = read_event(written(shape))
            except ValueError:
                continue
            shown = SseEvent(written(shape), found)
            _ = shown.usage, shown.carries_tokens, shown.ends
            assert shown.error is None or isinstance(from_stream_error(shown.error), Outcome)
            for render in (native, responses):
                render(echoed(priced(shown, None), {"a": 1}))
            openai(shown, usage=True)


DEEP = {"choices": [{"message": {"content": "a"}, "more": nested(300)}]}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(DEEP, id="deep, without usage"),
        pytest.param(DEEP | {"usage": USAGE}, id="deep"),
        pytest.param(nested(3000), id="too deep to be read"),
        pytest.param({"choices": [{"message": {"tool_calls": ["x"]}}], "usage": USAGE}, id="a call that is none"),
    ],
)
def test_an_answer_that_cannot_be_written_or_read_again_cannot_be_stored(body: Any) -> None:
    outcome = from_response(200, written(body))
    assert isinstance(outcome, Retry)
    assert (outcome.tries, outcome.kind) == (2, ErrorClass.NOT_STORED)


def test_a_state_that_is_no_text_is_no_reason_to_lose_an_answer() -> None:
    assert isinstance(from_response(200, written(WHOLE[0] | {"status": ["x"]})), Done)


def test_an_error_that_is_nested_too_deeply_is_still_an_error() -> None:
    assert isinstance(from_response(400, b'{"error": ' + written({"message": nested(300)}) + b"}"), Reject)
    assert isinstance(from_stream_error({"message": nested(300), "code": 400}), Reject)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_raises_for_no_shape(stream: bool) -> None:
    async with FakeEngine() as engine, EngineClient(engine.url, timeout_seconds=9) as client:
        engine.script({"mode": "junk", "body": written(DEEP).decode()})
        asked = {"model": engine.model, "messages": [{"role": "user", "content": "x"}], "stream": stream}
        request = EngineRequest(CHAT, orjson.dumps(asked))
        outcome = await (client.events(request, lambda _: None, begun=False) if stream else client.complete(request))
    assert isinstance(outcome, Retry)
    assert outcome.kind is ErrorClass.NOT_STORED
