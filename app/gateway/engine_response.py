"""Reads an engine's answer to a synchronous request, whole or as a stream, and classifies its failures."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import aiohttp

from app.engines.answer_shape import EventReader
from app.engines.answer_streams import is_stream
from app.engines.event_stream import DONE, EventSplitter
from app.engines.outcome import (
    ABORTED,
    TIMED_OUT,
    UNREADABLE,
    Done,
    Doubt,
    EngineDown,
    Outcome,
    Retry,
    from_response,
    from_stream_error,
    is_aborted,
    unreadable,
    without_result,
)
from app.gateway.sse_frames import SseEvent

_END_SECONDS = 0.05
_SMALL_BYTES = 256 * 1024  # a body up to this size is parsed without delaying other requests noticeably

T = TypeVar("T")
Begin = Callable[[aiohttp.ClientResponse], Awaitable[T]]


class NotBegun(Exception):
    """The engine failed before its answer began. `outcome` says how."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


async def begun_by(response: aiohttp.ClientResponse, begin: Begin[T]) -> T:
    """What `begin` makes of a response with status 200. Raises NotBegun for any other status."""
    if response.status != 200:
        raise NotBegun(from_response(response.status, await response.read()))
    return await begin(response)


async def read_whole(response: aiohttp.ClientResponse, prompt_tokens: int = 1) -> Done:
    """Read a complete answer. Raises NotBegun if it is not a good one. `prompt_tokens`: an estimate, if it has no usage."""
    body = await response.read()
    if len(body) <= _SMALL_BYTES:
        outcome = from_response(200, body, prompt_tokens)
    else:
        outcome = await asyncio.to_thread(from_response, 200, body, prompt_tokens)
    if not isinstance(outcome, Done):
        raise NotBegun(outcome)
    return outcome


async def read_first_event(response: aiohttp.ClientResponse) -> tuple[SseEvent | None, AsyncIterator[SseEvent]]:
    """Read a stream's first event. Returns it and the iterator of the others. Raises NotBegun if it is an error."""
    if not is_stream(response.content_type):
        outcome = from_response(200, await response.read())
        raise NotBegun(Retry("the engine did not answer with a stream") if isinstance(outcome, Done) else outcome)
    events = _events(response)
    first = await anext(events, None)
    failure = without_result() if first is None else failure_of(first)
    if failure is not None:
        raise NotBegun(failure)
    return first, events


def failure_of(event: SseEvent) -> Outcome | None:
    """What an event says that ends a stream as a failure; None for any other event."""
    if event.error:
        return from_stream_error(event.error)
    return Retry(ABORTED) if is_aborted(event.answer) else None


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[SseEvent]:
    """The events up to the end of the stream. Raises ClientPayloadError if the end is missing, one of UNREADABLE for what is
    no event.
    """
    reader = EventReader()
    async for data in EventSplitter().events(response.content):
        if data == DONE:
            reader.check()
            await _ended(response)
            return
        body, shown, _ = reader.read(data)
        event = SseEvent(shown, body)
        yield event
        if event.ends:
            return
    raise aiohttp.ClientPayloadError("the stream ended early")


async def _ended(response: aiohttp.ClientResponse) -> None:
    """Read the body's end, which follows the last event at once, so that the connection can be reused."""
    with suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(_END_SECONDS):
            await response.content.readany()


def outcome_of(error: Exception) -> Outcome:
    """The outcome of a request whose answer failed with this error before it began."""
    match error:
        case NotBegun():
            return error.outcome
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return EngineDown(f"cannot connect: {error}", suspect=False)
        case TimeoutError():
            return Retry("the engine gave no answer in time", TIMED_OUT)
        case aiohttp.ClientPayloadError() if "content-encoding" in str(error):
            return Doubt(200, "its compressed body cannot be read")
        case _ if isinstance(error, UNREADABLE):
            return unreadable(error)
        case _:
            return EngineDown("the engine was lost before its answer was complete", suspect=True)


def is_unreachable(outcome: Outcome) -> bool:
    """Whether no connection to the engine could be made, or it refuses our key."""
    return (isinstance(outcome, EngineDown) and not outcome.suspect) or (
        isinstance(outcome, Doubt) and outcome.refuses_key
    )


def another_may_succeed(outcome: Outcome) -> bool:
    """Whether to try another engine. The request may have crashed the first one, so only one more is tried."""
    return isinstance(outcome, (EngineDown, Doubt)) or (isinstance(outcome, Retry) and outcome.busy)
