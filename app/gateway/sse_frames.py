"""An engine's event stream, and the forms in which callers get it. Pure.

openai      the engine's events as they are, less the usage that only we asked for
responses   the same with the name of each event, which the Responses API has in front of its data
native      Workers AI's frames: {"response"}, {"tool_calls"}, {"finish_reason"}, at last {"response": "", "usage"}
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from app.engines.catalogue import Price
from app.engines.pricing import with_cost

DONE = b"data: [DONE]\n\n"
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event of an engine: `data` verbatim, and as JSON."""

    data: bytes
    body: dict[str, Any]

    @property
    def error(self) -> dict[str, Any] | None:
        """What went wrong, if that is what the event says."""
        error = self.body.get("error")
        return error if isinstance(error, dict) else None

    @property
    def usage(self) -> dict[str, Any] | None:
        """The token counts, in the one event without choices that has them."""
        response = self.body.get("response")
        usage = (response if isinstance(response, dict) else self.body).get("usage")
        return usage if isinstance(usage, dict) and not self.body.get("choices") else None

    @property
    def ends(self) -> bool:
        """Whether it is the last one of its stream; only the Responses API says so."""
        return self.body.get("type") in _ENDS

    @property
    def carries_tokens(self) -> bool:
        """Whether the caller sees output in it; an event of the role or of the end alone has none."""
        if str(self.body.get("type", "")).endswith(".delta"):
            return True
        for choice in self.body.get("choices") or ():
            delta = choice.get("delta") or {}
            if choice.get("text") or any(value for name, value in delta.items() if name != "role"):
                return True
        return False


class Splitter:
    """Takes a body of `text/event-stream` apart, however its bytes arrive."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, block: bytes) -> list[bytes]:
        """The data of the events that are complete now. vLLM sends one line of data an event."""
        *lines, self._rest = (self._rest + block).split(b"\n")
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]


def failed(code: int, message: str) -> SseEvent:
    """The event that ends a stream which cannot go on."""
    body = {"error": {"message": message, "type": "server_error", "param": None, "code": code}}
    return SseEvent(orjson.dumps(body), body)


def priced(event: SseEvent, price: Price | None) -> SseEvent:
    """The event with the cost of its tokens, where it tells them and they have a price."""
    if price is None or event.usage is None:
        return event
    body, usage = event.body, with_cost(event.usage, price)
    nested = isinstance(body.get("response"), dict)
    body = {**body, "response": {**body["response"], "usage": usage}} if nested else {**body, "usage": usage}
    return SseEvent(orjson.dumps(body), body)


def echoed(event: SseEvent, said: Mapping[str, Any]) -> SseEvent:
    """The event with these fields in the response that it tells of, if it tells of one."""
    response = event.body.get("response")
    if not isinstance(response, dict):
        return event
    body = {**event.body, "response": {**response, **said}}
    return SseEvent(orjson.dumps(body), body)


def openai(event: SseEvent, *, usage: bool) -> bytes:
    """The event for a caller who speaks OpenAI; nothing for the usage if it is not wanted."""
    return b"" if event.usage and not usage else _frame(event.data)


def responses(event: SseEvent) -> bytes:
    """The event as the Responses API frames it."""
    kind = "error" if event.error else str(event.body.get("type", ""))
    return b"event: " + kind.encode() + b"\n" + _frame(event.data)


def run_responses(event: SseEvent) -> bytes:
    """The same on Workers AI's routes, where every stream ends in `[DONE]`."""
    return responses(event) + (DONE if event.ends else b"")


def native(event: SseEvent) -> bytes:
    """The event in Workers AI's own frames, none to three of them."""
    if event.error:
        return _frame(event.data)
    if event.usage:
        return _frame(orjson.dumps({"response": "", "usage": event.usage}))
    frames = b""
    for choice in event.body.get("choices") or ():
        delta = choice.get("delta") or {}
        if text := delta.get("content") or choice.get("text"):
            frames += _frame(orjson.dumps({"response": text}))
        if calls := delta.get("tool_calls"):
            frames += _frame(orjson.dumps({"tool_calls": calls}))
        if reason := choice.get("finish_reason"):
            frames += _frame(orjson.dumps({"finish_reason": reason}))
    return frames


def _frame(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"
