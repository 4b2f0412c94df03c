"""A flex call that streams: the engine's events, which its worker notes in the queue while they come.

While the call waits for its turn, comments keep the line open. An answer that was told in part and is begun again, because its
engine or its worker was lost, ends the stream with an error: what was told cannot be taken back.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import orjson

from app import clock
from app.api.openai.flex_call import FlexCall, FlexRequest
from app.db.transient_errors import TRANSIENT
from app.engines.requests import RESPONSES
from app.errors import ExecutionFailed, SlackwaterError
from app.gateway import sse_frames
from app.gateway.sse_frames import SseEvent
from app.queue import response_log

SILENT_SECONDS = 1.0  # a stream that has nothing to tell says so this often
_KEEP_ALIVE = b": nothing yet\n\n"
_LOOK_SECONDS = (0.02, 0.5)  # shortest and longest pause between two looks
_AGAIN = "The answer was begun again after its engine was lost; send the call again"


class Heard:
    """What was told of one answer so far."""

    def __init__(self) -> None:
        self.ended = False
        self._name: str | None = None
        self._words = False

    def latest(self, found: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """Of further events those of the last try: of an earlier one nothing more needs to be told."""
        begin, name = 0, self._name
        for place, body in enumerate(found):
            if (its := _name(body)) not in (None, name):
                begin, name = place, its
        return found[begin:]

    def take(self, event: SseEvent) -> None:
        """The next event. Raises ExecutionFailed where it begins the answer anew and words of it were told before."""
        body = event.body
        if (name := _name(body)) not in (None, self._name):
            if self._words:
                raise ExecutionFailed(_AGAIN)
            self._name = name
        self._words = self._words or event.carries_tokens
        self.ended = event.ends or bool(event.usage and "type" not in body)

    def rest(self, answer: dict[str, Any]) -> list[SseEvent]:
        """What is missing of an answer that is there. Raises ExecutionFailed where words were told that it may not begin with."""
        if self.ended:
            return []
        if self._words:
            raise ExecutionFailed("A part of the stream was lost; send the call again")
        return [SseEvent(orjson.dumps(body), body) for body in _as_events(answer)]


def _name(event: dict[str, Any]) -> str | None:
    """Which try of the engine an event is of, where it says so; the first one does."""
    name: str | None = (event.get("response") or event).get("id")
    return name


def _as_events(answer: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """A whole answer as the shortest stream."""
    if answer.get("object") == "response":
        begun = answer | {"status": "in_progress", "output": [], "usage": None}
        return [
            {"type": "response.created", "sequence_number": 0, "response": begun},
            {"type": f"response.{answer['status']}", "sequence_number": 1, "response": answer},
        ]
    head = {name: answer.get(name) for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    choices = []
    for choice in answer["choices"]:
        message = choice["message"]
        calls = [{"index": i, **call} for i, call in enumerate(message.get("tool_calls") or ())]
        delta = message | {"tool_calls": calls} if calls else message
        choices.append({**{name: value for name, value in choice.items() if name != "message"}, "delta": delta})
    return [{**head, "choices": choices}, {**head, "choices": [], "usage": answer["usage"]}]


async def events(call: FlexCall, *, first_seconds: float) -> AsyncGenerator[SseEvent | None, None]:
    """The events up to the answer's end; None where for `first_seconds`, later `SILENT_SECONDS`, there was none.

    Raises SlackwaterError for what became of the call where it has no answer.
    """
    heard, after, pause = Heard(), -1, _LOOK_SECONDS[0]
    due = clock.monotonic() + first_seconds
    while True:
        found, after, final = await _look(call, after)
        for body in heard.latest(found):
            event = SseEvent(orjson.dumps(body), body)
            heard.take(event)
            yield event
        if found:
            pause, due = _LOOK_SECONDS[0], clock.monotonic() + SILENT_SECONDS
            continue
        if final:
            break
        if clock.monotonic() >= due:
            due = clock.monotonic() + SILENT_SECONDS
            yield None
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LOOK_SECONDS[1])
    for event in heard.rest(await call.answer()):
        yield event


async def _look(call: FlexCall, after: int) -> tuple[list[dict[str, Any]], int, bool]:
    """The events beyond that number, the last one's, and whether there will be no more. A database that is away has no news."""
    found: list[dict[str, Any]] = []
    try:
        status = await call.status()
        async with call.parts.database.relaxed() as conn:
            while page := await response_log.events(conn, status.batch_id, after):
                found += [body for _, body in page]
                after = page[-1][0]
    except TRANSIENT:
        return found, after, False
    return found, after, status.finalized_at is not None


async def frames_of(
    first: SseEvent | None, rest: AsyncGenerator[SseEvent | None, None], call: FlexCall
) -> AsyncIterator[bytes]:
    """The stream as the caller reads it, `first` being its first event. What goes wrong ends it with an error."""
    ended = False
    try:
        event = first
        while True:
            yield _KEEP_ALIVE if event is None else _frame(event, call.asked)
            ended = event is not None and event.ends
            event = await anext(rest)
    except StopAsyncIteration:
        if not ended:
            yield sse_frames.DONE
    except SlackwaterError as error:
        yield _frame(sse_frames.failed(error.code, error.message), call.asked)
    finally:
        await rest.aclose()


def _frame(event: SseEvent, asked: FlexRequest) -> bytes:
    event = sse_frames.priced(event, asked.model.price)
    if asked.endpoint == RESPONSES:
        return sse_frames.responses(sse_frames.echoed(event, asked.said))
    options = asked.item.get("stream_options")
    wanted = isinstance(options, dict) and options.get("include_usage") is True
    if event.error is None:
        body = event.body | asked.said
        event = SseEvent(orjson.dumps(body), body)
    return sse_frames.openai(event, usage=wanted)
