"""Events of an engine's answer, read as they arrive."""

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest

from app.engines.answer_streams import read_events, read_transcript
from app.engines.continuation import Continuation
from app.engines.outcome import ABORTED, INVALID, Done, EngineDown, Reject, Retry, Usage, from_response
from app.engines.requests import CHAT, Target, build

RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "a tide"}]}],
}
EVENTS: list[dict[str, Any]] = [
    {"type": "response.created", "response": {"id": "resp_1"}},
    {"type": "response.output_text.delta", "delta": "a"},
    {"type": "response.output_text.delta", "delta": " tide"},
    {"type": "response.completed", "response": RESPONSE},
]


def arriving(events: list[dict[str, Any]]) -> aiohttp.StreamReader:
    """The events as the body of an HTTP answer."""
    reader = aiohttp.StreamReader(aiohttp.base_protocol.BaseProtocol(asyncio.get_running_loop()), 2**16)
    reader.feed_data(b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in events))
    reader.feed_eof()
    return reader


async def test_a_response_whose_stream_reports_no_usage_gets_one_in_the_event_that_ends_it() -> None:
    told: list[bytes] = []
    outcome = await read_events(arriving(EVENTS), told.append, begun=False, prompt_tokens=7)
    assert isinstance(outcome, Done)
    assert outcome.usage == Usage(7, 0, 2)
    assert orjson.loads(told[-1])["response"]["usage"] == {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}


async def test_the_usage_that_a_response_reports_is_kept() -> None:
    usage = {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}
    events = [*EVENTS[:-1], {"type": "response.completed", "response": RESPONSE | {"usage": usage}}]
    outcome = await read_events(arriving(events), lambda _: None, begun=True, prompt_tokens=7)
    assert isinstance(outcome, Done)
    assert outcome.usage == Usage(5, 0, 3)


async def test_a_response_whose_usage_was_estimated_says_so_in_the_stream_and_where_it_is_kept() -> None:
    told: list[bytes] = []
    outcome = await read_events(arriving(EVENTS), told.append, begun=False, prompt_tokens=7)
    assert isinstance(outcome, Done)
    mark = {"repaired": ["no usage: tokens are estimated"]}
    assert orjson.loads(told[-1])["response"]["slackwater"] == orjson.loads(outcome.body)["slackwater"] == mark


async def test_a_lone_surrogate_in_a_stream_is_replaced_for_who_follows_and_where_it_is_kept() -> None:
    reader = aiohttp.StreamReader(aiohttp.base_protocol.BaseProtocol(asyncio.get_running_loop()), 2**16)
    lines = b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in pieces("stop"))
    reader.feed_data(lines.replace(b'"a"', b'"a \\ud83d"'))
    reader.feed_eof()
    told: list[bytes] = []
    outcome = await read_events(reader, told.append, begun=False)
    assert isinstance(outcome, Done)
    answer = orjson.loads(outcome.body)
    assert answer["choices"][0]["message"]["content"] == "a \N{REPLACEMENT CHARACTER} tide"
    assert answer["slackwater"]["repaired"]
    assert orjson.loads(told[0])["choices"][0]["delta"]["content"] == "a \N{REPLACEMENT CHARACTER}"


USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def pieces(reason: Any, **more: Any) -> list[dict[str, Any]]:
    """A chat in chunks; its last one has this reason."""
    texts = [{"choices": [{"delta": {"content": text}, **more}]} for text in ("a", " tide")]
    return [*texts, {"choices": [{"delta": {}, "finish_reason": reason, **more}]}, {"choices": [], "usage": USAGE}]


def ended(events: list[dict[str, Any]]) -> aiohttp.StreamReader:
    """Chunks, and the sign that all have come."""
    reader = aiohttp.StreamReader(aiohttp.base_protocol.BaseProtocol(asyncio.get_running_loop()), 2**16)
    reader.feed_data(b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in events) + b"data: [DONE]\n\n")
    reader.feed_eof()
    return reader


def transcript() -> Continuation:
    """Of a request that was sent once."""
    request = build({"messages": [{"role": "user", "content": "hi"}]}, CHAT, Target("m", 6, 100), "salt")
    begun = Continuation(request, 100)
    begun.call()
    return begun


@pytest.mark.parametrize(
    "reason", ["abort", "cancelled", "error", "timeout", "ERROR", {"type": "abort", "message": "x"}]
)
async def test_an_answer_that_was_aborted_is_tried_again_whole_streamed_and_followed(reason: Any) -> None:
    whole = {"choices": [{"finish_reason": reason, "message": {"content": "a"}}], "usage": USAGE}
    response = RESPONSE | {"status": "cancelled", "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}
    kept = transcript()
    outcomes = [
        from_response(200, orjson.dumps(whole)),
        from_response(200, orjson.dumps(response)),
        await read_events(ended(pieces(reason)), lambda _: None, begun=False),
        await read_transcript(ended(pieces(reason)), kept, lambda: None),
    ]
    assert [isinstance(outcome, Retry) and outcome.reason == ABORTED for outcome in outcomes] == [True] * 4
    told: list[bytes] = []
    cut = [*EVENTS[:-1], {"type": "response.completed", "response": response}]
    assert await read_events(arriving(cut), told.append, begun=False) == Retry(ABORTED)
    assert len(told) == len(cut) - 1, "nobody is told that it is complete"
    assert (kept.pieces, kept.complete) == (["a tide"], False), "the next try goes on behind it"


@pytest.mark.parametrize("more", [{}, {"index": None}, {"index": 0}])
async def test_a_stream_without_reasons_or_places_that_says_it_has_ended_is_whole(more: dict[str, Any]) -> None:
    events = [event | {"error": None} for event in pieces(None, **more)]
    followed = await read_events(ended(events), lambda _: None, begun=False)
    assert isinstance(followed, Done)
    [choice] = orjson.loads(followed.body)["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("a tide", "stop")
    kept = transcript()
    assert await read_transcript(ended(events), kept, lambda: None) is None
    assert kept.complete
    assert isinstance(await read_events(arriving(events), lambda _: None, begun=False), EngineDown), "it says nothing"


FLAT = {"message": "the prompt is too long", "type": "BadRequestError", "param": None, "code": 400}


@pytest.mark.parametrize("shape", [{"error": FLAT}, {"object": "error"} | FLAT, FLAT, FLAT | {"type": "error"}])
async def test_an_error_with_the_status_200_is_one_in_every_shape_whole_streamed_and_followed(shape: Any) -> None:
    outcomes = [
        from_response(200, orjson.dumps(shape)),
        await read_events(ended([shape]), lambda _: None, begun=False),
        await read_transcript(ended([shape]), transcript(), lambda: None),
    ]
    assert outcomes == [Reject(INVALID, "the prompt is too long")] * 3


ODD = {"choices": [{"content": "hi", "finish_reason": "stop"}], "usage": USAGE}


@pytest.mark.parametrize("events", [[], [{"choices": [], "usage": USAGE}], [{"detail": "too long"}], [ODD]])
async def test_a_stream_without_an_answer_is_no_empty_answer(events: list[dict[str, Any]]) -> None:
    kept = transcript()
    outcomes = [
        await read_events(ended(events), lambda _: None, begun=False),
        await read_transcript(ended(events), kept, lambda: None),
    ]
    assert all(isinstance(outcome, Retry) for outcome in outcomes)
    assert not kept.complete


async def test_a_stream_that_broke_off_in_mid_answer_is_no_answer() -> None:
    half, kept = pieces(None)[:2], transcript()
    outcomes = [
        await read_events(arriving(half), lambda _: None, begun=False),
        await read_transcript(arriving(half), kept, lambda: None),
    ]
    assert outcomes == [EngineDown("the stream ended early", suspect=True)] * 2
    assert not kept.complete
