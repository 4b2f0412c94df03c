"""The events of an engine's stream, and their formats for callers. Pure.

openai      the engine's events unchanged, without the usage if the caller did not request it
responses   the same, with each event's name before its data, as in the Responses API
native      Workers AI's frames: {"response"}, {"refusal"}, {"tool_calls"}, {"finish_reason"}, finally {"response": "", "usage"}
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from app.engines.catalogue import Price
from app.engines.pricing import with_cost
from app.errors import SlackwaterError

DONE = b"data: [DONE]\n\n"
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event of an engine: its `data` verbatim, and parsed as `body`."""

    data: bytes
    body: dict[str, Any]

    @property
    def error(self) -> dict[str, Any] | None:
        """The error, if the event is one."""
        error = self.body.get("error")
        if not error and self.body.get("type") == "response.failed":
            error = self.answer.get("error")
        return error if isinstance(error, dict) or not error else {"message": str(error)}

    @property
    def answer(self) -> dict[str, Any]:
        """What says how the answer ends: the chunk or, in the event that ends a response, that. Empty in other events."""
        response = self.body.get("response") if self.ends else None
        return response if isinstance(response, dict) else {} if "type" in self.body else self.body

    @property
    def usage(self) -> dict[str, Any] | None:
        """The token counts, if the event has them: some engines send them beside the last choice, or with every one."""
        response = self.body.get("response")
        usage = (response if isinstance(response, dict) else self.body).get("usage")
        return usage if isinstance(usage, dict) else None

    @property
    def counts(self) -> bool:
        """Whether this is the event that has the token counts of the whole answer."""
        choices = self.body.get("choices") or ()
        return bool(self.usage) and all(choice.get("finish_reason") for choice in choices)

    @property
    def ends(self) -> bool:
        """Whether this is the last event of a Responses API stream. Other streams do not mark it."""
        return self.body.get("type") in _ENDS

    @property
    def carries_tokens(self) -> bool:
        """Whether the event has output. Events with only a role or a finish reason have none."""
        if str(self.body.get("type", "")).endswith(".delta"):
            return True
        for choice in self.body.get("choices") or ():
            delta = choice.get("delta") or {}
            if choice.get("text") or any(value for name, value in delta.items() if name != "role"):
                return True
        return False


def failed(error: SlackwaterError) -> SseEvent:
    """The error event that ends a failed stream, in the form of every error."""
    body = error.content()
    return SseEvent(orjson.dumps(body), body)


def priced(event: SseEvent, price: Price | None) -> SseEvent:
    """The event with the cost of its tokens, if it has a usage and there is a price."""
    if price is None or event.usage is None:
        return event
    body, usage = event.body, with_cost(event.usage, price)
    nested = isinstance(body.get("response"), dict)
    body = {**body, "response": {**body["response"], "usage": usage}} if nested else {**body, "usage": usage}
    return SseEvent(orjson.dumps(body), body)


def echoed(event: SseEvent, fields: Mapping[str, Any]) -> SseEvent:
    """The event with these fields added to its response object, if it has one."""
    response = event.body.get("response")
    if not isinstance(response, dict):
        return event
    body = {**event.body, "response": {**response, **fields}}
    return SseEvent(orjson.dumps(body), body)


def openai(event: SseEvent, *, usage: bool) -> bytes:
    """The event for an OpenAI client. Empty for the usage event unless `usage` is set."""
    return b"" if event.usage and not event.body.get("choices") and not usage else _frame(event.data)


def responses(event: SseEvent) -> bytes:
    """The event in the framing of the Responses API."""
    kind = "error" if event.error else str(event.body.get("type", ""))
    return b"event: " + kind.encode() + b"\n" + _frame(event.data)


def run_responses(event: SseEvent) -> bytes:
    """The same for Workers AI's routes, where every stream ends with `[DONE]`."""
    return responses(event) + (DONE if event.ends else b"")


def native(event: SseEvent) -> bytes:
    """The event as Workers AI's own frames, of which there may be none."""
    if event.error:
        return _frame(event.data)
    frames = b""
    for choice in event.body.get("choices") or ():
        delta = choice.get("delta") or {}
        if text := delta.get("content") or choice.get("text"):
            frames += _frame(orjson.dumps({"response": text}))
        if refusal := delta.get("refusal"):
            frames += _frame(orjson.dumps({"refusal": refusal}))
        if calls := delta.get("tool_calls"):
            frames += _frame(orjson.dumps({"tool_calls": calls}))
        if reason := choice.get("finish_reason"):
            frames += _frame(orjson.dumps({"finish_reason": reason}))
    return frames + (_frame(orjson.dumps({"response": "", "usage": event.usage})) if event.counts else b"")


def _frame(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"
