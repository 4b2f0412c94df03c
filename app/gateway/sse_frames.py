"""The events of an engine's stream, and their formats for callers. Pure.

openai      the engine's events unchanged, without the usage if the caller did not request it
responses   the same, with each event's name before its data, as in the Responses API
native      Workers AI's frames: {"response"}, {"refusal"}, {"tool_calls"}, {"finish_reason"}, finally {"response": "", "usage"}
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from app.engines.catalogue import Price
from app.engines.json_text import JsonText
from app.engines.pricing import cost_fields
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
    fields = cost_fields(event.usage, price)
    if not fields:
        return event
    return with_fields(event, fields, *(("response",) if isinstance(event.body.get("response"), dict) else ()), "usage")


def echoed(event: SseEvent, fields: Mapping[str, Any]) -> SseEvent:
    """The event with these fields added to its response object, if it has one."""
    return with_fields(event, fields, "response") if isinstance(event.body.get("response"), dict) else event


def with_fields(event: SseEvent, fields: Mapping[str, Any], *path: str) -> SseEvent:
    """The event with these fields in its object at `path`. No other byte of it differs."""
    return SseEvent(bytes(JsonText(event.data).set(fields, *path)), _with(event.body, fields, path))


def _with(body: Mapping[str, Any], fields: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    if not path:
        return {**body, **fields}
    return {**body, path[0]: _with(body[path[0]], fields, path[1:])}


def openai(event: SseEvent, *, usage: bool) -> bytes:
    """The event for an OpenAI client. Empty for the usage event unless `usage` is set."""
    return b"" if event.usage and not event.body.get("choices") and not usage else _frame(event.data)


def responses(event: SseEvent) -> bytes:
    """The event in the framing of the Responses API."""
    kind = "error" if event.error else str(event.body.get("type", ""))
    return b"event: " + kind.encode() + b"\n" + _frame(event.data)


def run_responses(event: SseEvent) -> bytes:
    """The same for Workers AI's routes, where every stream ends with `[DONE]`."""
    return b"event: error\n" + _envelope(event) if event.error else responses(event) + (DONE if event.ends else b"")


def run_openai(event: SseEvent) -> bytes:
    """The event of a chat completion for Workers AI's routes."""
    return _envelope(event) if event.error else openai(event, usage=True)


def native(event: SseEvent) -> bytes:
    """The event as Workers AI's own frames, of which there may be none."""
    if event.error:
        return _envelope(event)
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
    if event.counts:
        frames += _frame(b'{"response":"","usage":%b}' % (JsonText(event.data).get("usage") or b"null"))
    return frames


def _envelope(event: SseEvent) -> bytes:
    """An error as on every route of Workers AI: Cloudflare's envelope, without OpenAI's `error`."""
    return _frame(orjson.dumps({name: value for name, value in event.body.items() if name != "error"}))


def _frame(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"
