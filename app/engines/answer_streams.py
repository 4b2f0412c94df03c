"""Reads the events of an engine's answer as they arrive."""

from collections.abc import Callable
from typing import Any

import aiohttp
import orjson

from app.engines import mending
from app.engines.answer_faults import first_line
from app.engines.answer_shape import EventReader
from app.engines.continuation import Continuation
from app.engines.event_stream import DONE, EventSplitter
from app.engines.json_text import JsonText
from app.engines.outcome import (
    ABORTED,
    Done,
    Doubt,
    EngineDown,
    Outcome,
    Retry,
    from_response,
    from_stream_error,
    is_abort,
    marked,
    usage_of,
    without_result,
)
from app.engines.stream_merge import Chunks

_WHOLE = ("text/html", "application/json")  # of an answer that is no stream, although one was asked for


def is_stream(content_type: str) -> bool:
    """Whether an answer with this media type can be a stream. A proxy's page is none."""
    return content_type not in _WHOLE


async def read_transcript(
    content: aiohttp.StreamReader, transcript: Continuation, on_first_token: Callable[[], None]
) -> Outcome | None:
    """Read a stream into a transcript. Returns None when the answer has ended, else the outcome.

    `on_first_token` is called at the first token.
    """
    before, notified, done = transcript.received, False, False
    events = EventSplitter()
    async for data in events.events(content):
        if data == DONE:
            done = True
            break
        transcript.feed(data)
        if not notified and transcript.received > before:
            notified = True
            on_first_token()
        if transcript.error is not None:
            error, transcript.error = transcript.error, None
            return from_stream_error(error)
    if is_abort(transcript.finish_reason):
        transcript.finish_reason = None  # the next try goes on behind what was received
        return Retry(ABORTED)
    if transcript.finish_reason is None and done and transcript.begun:  # not every server gives a reason
        transcript.finish_reason = "stop"
    if transcript.finish_reason and transcript.begun:
        return None
    transcript.finish_reason = None  # of a stream in which there is nothing that we understand
    return _early_end(events, done=done)


async def read_events(
    content: aiohttp.StreamReader, on_event: Callable[[bytes], None], *, begun: bool, prompt_tokens: int | None = None
) -> Outcome:
    """Read the events of a response or the chunks of a chat completion. Returns the outcome.

    `prompt_tokens`: an estimate. With it, an answer whose stream reports no usage gets one: a chat completion as a last event,
    a response in the event that ends it. Each piece counts as a token.
    """
    reader = _Events(on_event, begun=begun, prompt_tokens=prompt_tokens)
    events = EventSplitter()
    async for data in events.events(content):
        if (outcome := reader.take(data)) is not None:
            return outcome
    return reader.end() or _early_end(events, done=reader.done)


class _Events:
    """The events of one answer, in order. For its arguments see `read_events`."""

    def __init__(self, on_event: Callable[[bytes], None], *, begun: bool, prompt_tokens: int | None) -> None:
        self._on_event = on_event
        self._begun = begun
        self._prompt_tokens = prompt_tokens
        self._reader = EventReader()
        self._chunks = Chunks()
        self._pieces = 0
        self.done = False
        self._mended: list[str] = []

    def take(self, data: bytes) -> Outcome | None:
        """Pass an event on. Returns the outcome if it is the last one."""
        if data == DONE:
            self.done = True
            return None
        event, shown, mended = self._reader.read(data)
        self._mended += (repair for repair in mended if repair not in self._mended)
        kind = event.get("type")
        if kind in ("error", "response.failed") or event.get("error"):
            return from_stream_error(event.get("error") or (event.get("response") or {}).get("error") or event)
        if kind == "response.cancelled":
            return Retry(ABORTED)
        self._pieces += str(kind).endswith(".delta")
        if kind in ("response.completed", "response.incomplete"):
            return self._whole(shown)
        if not (self._begun and kind in ("response.created", "response.queued")):
            self._on_event(shown)
        if kind is None:
            self._chunks.take(event)
        return None

    def _whole(self, event: bytes) -> Outcome:
        """The outcome of a response, whose last event it is."""
        more: dict[str, Any] = {}
        if self._prompt_tokens is not None and usage_of(orjson.loads(event)["response"]) is None:
            more["usage"] = {
                "input_tokens": self._prompt_tokens,
                "output_tokens": self._pieces,
                "total_tokens": self._prompt_tokens + self._pieces,
            }
            self._mended.append(mending.NO_USAGE)
        if self._mended:
            more[mending.MARK] = {"repaired": self._mended}
        event = bytes(JsonText(event).set(more, "response")) if more else event
        outcome = from_response(200, JsonText(event).get("response") or b"", self._prompt_tokens or 1)
        if isinstance(outcome, Done):
            self._on_event(event)
        return marked(outcome, self._mended)

    def end(self) -> Outcome | None:
        """The outcome of chunks; None if they are not all."""
        if self.done:
            self._chunks.end()
        if self._prompt_tokens is not None and (last := self._chunks.missing_usage(self._prompt_tokens)) is not None:
            self._on_event(orjson.dumps(last))
            self._chunks.take(last)
            self._mended.append(mending.NO_USAGE)
        answer = self._chunks.answer()
        if answer is None:
            return None
        return marked(from_response(200, orjson.dumps(answer), self._prompt_tokens or 1), self._mended)


def _early_end(events: EventSplitter, *, done: bool) -> EngineDown | Doubt | Retry:
    """The outcome of an answer without its last event. `done`: it has said that it ends, so nothing was in it."""
    if done:
        return without_result()
    if events.begun:
        return EngineDown("the stream ended early", suspect=True)
    # Something between may have sent what is no stream.
    return Doubt(200, first_line(events.other.decode(errors="replace")))
