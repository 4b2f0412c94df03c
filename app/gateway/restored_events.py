"""Restores the values behind placeholders in a stream of events: chat, text completions, and the Responses API. Pure.

A placeholder may arrive in several deltas. So each text of an answer (a choice, the arguments of a tool call, an output item)
holds back what may begin one; the rest of it follows with the event that ends the text.
"""

from collections.abc import AsyncGenerator, Hashable, Mapping
from typing import Any

import orjson

from app.gateway.sse_frames import SseEvent
from app.policy.placeholders import StreamRestorer
from app.policy.redaction import restored

_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")
_DELTA, _DONE = ".delta", ".done"
_ARGUMENTS = "arguments"


async def of(events: AsyncGenerator[SseEvent, None], values: Mapping[str, str]) -> AsyncGenerator[SseEvent, None]:
    """The events with the values of these placeholders."""
    restorer = EventRestorer(values)
    try:
        async for event in events:
            for each in restorer.feed(event):
                yield each
    finally:
        await events.aclose()


class EventRestorer:
    """Restores the events of one answer."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self._texts: dict[Hashable, StreamRestorer] = {}
        self._last: dict[Hashable, dict[str, Any]] = {}  # deltas of the Responses API

    def feed(self, event: SseEvent) -> list[SseEvent]:
        """What can be sent now: this event with restored texts, and before it the rest of a text that it ends."""
        body = event.body
        if isinstance(body.get("choices"), list) and "type" not in body:
            choices = [self._choice(choice, place) for place, choice in enumerate(body["choices"])]
            return [_event({**body, "choices": choices}, event)]
        kind = str(body.get("type", ""))
        name = (
            kind.removesuffix(_DELTA).removesuffix(_DONE),
            *map(body.get, ("output_index", "content_index", "item_id")),
        )
        if kind.endswith(_DELTA) and isinstance(body.get("delta"), str):
            self._last[name] = body
            return [_event({**body, "delta": self._text(name, in_json=_ARGUMENTS in kind).feed(body["delta"])}, event)]
        rest = self._texts.pop(name).finish() if kind.endswith(_DONE) and name in self._texts else ""
        before = [_event({**self._last[name], "delta": rest}, event)] if rest else []
        return [*before, _event(restored(body, self._values, of_answer=True), event)]

    def _choice(self, choice: dict[str, Any], place: int) -> dict[str, Any]:
        index = place if choice.get("index") is None else choice["index"]
        ends = choice.get("finish_reason") is not None
        found = dict(choice)
        if isinstance(choice.get("text"), str):
            found["text"] = self._piece((index, "text"), choice["text"], ends=ends)
        if not isinstance(choice.get("delta"), dict):
            return found
        found["delta"] = delta = dict(choice["delta"])
        for field in _TEXTS:
            name = (index, field)
            if isinstance(delta.get(field), str) or (ends and name in self._texts):
                delta[field] = self._piece(name, delta.get(field) or "", ends=ends)
        if delta.get("tool_calls"):
            delta["tool_calls"] = [self._call((index, _ARGUMENTS, call["index"]), call) for call in delta["tool_calls"]]
        return found

    def _call(self, name: Hashable, call: dict[str, Any]) -> dict[str, Any]:
        """A part of a tool call. Its arguments end in `}`, so nothing is held back at their end."""
        function = call.get("function")
        if not isinstance(function, dict) or not isinstance(function.get(_ARGUMENTS), str):
            return call
        text = self._text(name, in_json=True).feed(function[_ARGUMENTS])
        return {**call, "function": {**function, _ARGUMENTS: text}}

    def _piece(self, name: Hashable, piece: str, *, ends: bool) -> str:
        text = self._text(name)
        return text.feed(piece) + (text.finish() if ends else "")

    def _text(self, name: Hashable, *, in_json: bool = False) -> StreamRestorer:
        if name not in self._texts:
            self._texts[name] = StreamRestorer(self._values, in_json=in_json or None)
        return self._texts[name]


def _event(body: dict[str, Any], given: SseEvent) -> SseEvent:
    """An event with this body; the given one, in its own bytes, if that has it."""
    return given if body == given.body else SseEvent(orjson.dumps(body), body)
