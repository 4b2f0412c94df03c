"""A flex call that streams: its worker writes the engine's events to the response log, and they are sent from there.

While the call waits for its turn, comments keep the connection open. When an engine or a worker is lost, the answer starts
again. If a part of the first answer was sent already, the stream ends with an error, because that part cannot be taken back.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import orjson

from app import clock
from app.api.openai.flex_call import FlexCall, FlexRequest
from app.api.sync_requests import includes_usage
from app.db.transient_errors import TRANSIENT
from app.engines.requests import RESPONSES
from app.errors import ExecutionFailed, SlackwaterError
from app.gateway import sse_frames
from app.gateway.sse_frames import SseEvent
from app.policy.tool_call_events import EventWithholder
from app.queue import response_log
from app.queue.reads import BatchStatus
from app.sealing.keyring import Keyring

SILENT_SECONDS = 1.0  # pause between two comments in a stream without events
_KEEP_ALIVE = b": nothing yet\n\n"
_POLL_SECONDS = (0.02, 0.5)  # shortest and longest pause between two polls
_RESTARTED = "The answer started again after its engine was lost; send the call again"


class SentEvents:
    """The events of one answer that were sent so far."""

    def __init__(self) -> None:
        self.ended = False
        self._name: str | None = None
        self._sent_tokens = False

    def latest(self, found: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """The events that belong to the last attempt of the engine; those of earlier attempts need not be sent."""
        begin, name = 0, self._name
        for place, body in enumerate(found):
            if (attempt := _attempt_name(body)) not in (None, name):
                begin, name = place, attempt
        return found[begin:]

    def take(self, event: SseEvent) -> None:
        """Add the next event. Raises ExecutionFailed where it starts the answer again after tokens of it were sent."""
        body = event.body
        if (name := _attempt_name(body)) not in (None, self._name):
            if self._sent_tokens:
                raise ExecutionFailed(_RESTARTED)
            self._name = name
        self._sent_tokens = self._sent_tokens or event.carries_tokens
        self.ended = event.ends or (event.counts and "type" not in body)

    def rest(self, answer: dict[str, Any]) -> list[SseEvent]:
        """The events that are missing of a whole answer. Raises ExecutionFailed where tokens were sent already."""
        if self.ended:
            return []
        if self._sent_tokens:
            raise ExecutionFailed("A part of the stream was lost; send the call again")
        return [SseEvent(orjson.dumps(body), body) for body in _as_events(answer)]


def _attempt_name(event: dict[str, Any]) -> str | None:
    """The id of the engine's attempt that an event belongs to. The first event has it; None: this one does not."""
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
        calls = [{**call, "index": i} for i, call in enumerate(message.get("tool_calls") or ())]
        delta = message | {"tool_calls": calls} if calls else message
        choices.append({**{name: value for name, value in choice.items() if name != "message"}, "delta": delta})
    return [{**head, "choices": choices}, {**head, "choices": [], "usage": answer["usage"]}]


async def events(call: FlexCall, *, first_seconds: float) -> AsyncGenerator[SseEvent | None, None]:
    """The events until the answer ends; None after `first_seconds`, later `SILENT_SECONDS`, without an event.

    Raises SlackwaterError where the call ends without an answer.
    """
    sent, after, pause = SentEvents(), -1, _POLL_SECONDS[0]
    due = clock.monotonic() + first_seconds
    withholding: EventWithholder | None = None
    while True:
        found, after, status, final = await _read(call, after)
        if withholding is None and status is not None:
            withholding = call.withholding(status)
        for body in sent.latest(found):
            sent.take(SseEvent(b"", body))
            for each in [body] if withholding is None else withholding.feed(body):
                yield SseEvent(orjson.dumps(each), each)
        if found:
            pause, due = _POLL_SECONDS[0], clock.monotonic() + SILENT_SECONDS
            continue
        if final:
            break
        if clock.monotonic() >= due:
            due = clock.monotonic() + SILENT_SECONDS
            yield None
        await asyncio.sleep(pause)
        pause = min(2 * pause, _POLL_SECONDS[1])
    for event in sent.rest(orjson.loads(await call.answer())):
        yield event


async def _read(call: FlexCall, after: int) -> tuple[list[dict[str, Any]], int, BatchStatus | None, bool]:
    """The events after that number, the number of the last one, the state of the call, and whether there is no further event. No
    events while the database is down.
    """
    found: list[dict[str, Any]] = []
    status: BatchStatus | None = None
    try:
        status = await call.status()
        keyring = Keyring.of(call.parts.settings)
        async with call.parts.database.relaxed() as conn:
            while page := await response_log.events(conn, status.batch_id, after, keyring):
                found += [body for _, body in page]
                after = page[-1][0]
    except TRANSIENT:
        return found, after, status, False
    return found, after, status, status.finalized_at is not None


async def frames_of(
    first: SseEvent | None, rest: AsyncGenerator[SseEvent | None, None], call: FlexCall
) -> AsyncIterator[bytes]:
    """The stream in the form that the client reads; `first` is its first event. An error ends it."""
    ended = False
    try:
        event = first
        while True:
            yield _KEEP_ALIVE if event is None else _frame(event, call.request)
            ended = event is not None and event.ends
            event = await anext(rest)
    except StopAsyncIteration:
        if not ended:
            yield sse_frames.DONE
    except SlackwaterError as error:
        yield _frame(sse_frames.failed(error), call.request)
    finally:
        await rest.aclose()


def _frame(event: SseEvent, request: FlexRequest) -> bytes:
    event = sse_frames.priced(event, request.model.price)
    if request.route.endpoint == RESPONSES:
        return sse_frames.responses(sse_frames.echoed(event, request.repeated))
    if event.error is None:
        event = sse_frames.with_fields(event, request.repeated)
    return sse_frames.openai(event, usage=includes_usage(request.item))
