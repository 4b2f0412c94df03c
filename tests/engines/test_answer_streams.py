"""Events of an engine's answer, read as they arrive."""

import asyncio
from typing import Any

import aiohttp
import orjson

from app.engines.answer_streams import read_events
from app.engines.outcome import Done, Retry, Usage

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


async def test_without_an_estimate_a_response_without_usage_is_tried_again() -> None:
    assert isinstance(await read_events(arriving(EVENTS), lambda _: None, begun=False), Retry)
