"""The shape of answers and of their events that all who read them rely on, here and where callers read. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from app.engines import mending
from app.engines.call_parts import CallIndices
from app.engines.message_chunks import MessagesAsDeltas

_RESULTS = (
    "choices",
    "data",
    "output",
    "response",
    "delta",
    "item",
    "part",
)  # of an answer or an event that is no error
_CALLS = b'"tool_calls"'


class NoEvent(ValueError):
    """What an engine has sent is no event, or no stream of them. The message says so in words that callers may read."""


class EventReader:
    """Reads the events of one stream, in order. `understood`: there was one that may be of an answer, if only of an empty one."""

    def __init__(self) -> None:
        self._any = self.understood = False
        self._indices = CallIndices()
        self._deltas = MessagesAsDeltas()

    def read(self, data: bytes) -> tuple[dict[str, Any], bytes, list[str]]:
        """See `read_event`; with the bytes of the event. Its choices have a `delta`, and its tool calls an index of their own."""
        event, mended = read_event(data)
        corrected = self._deltas.correct(event)
        corrected |= (corrected or _CALLS in data) and self._indices.correct(event)
        self._any = True
        self.understood = self.understood or "type" in event or any(map(_says, event.get("choices") or ()))
        return event, orjson.dumps(event) if mended or corrected else data, mended

    def check(self) -> None:
        """Call at the end. Raises NoEvent if there were events, and nothing was understood."""
        if self._any and not self.understood:
            raise NoEvent("no event of its stream has a part of an answer")


def _says(choice: Mapping[str, Any]) -> bool:
    return isinstance(choice.get("delta"), dict) or isinstance(choice.get("text"), str)


def read_event(data: bytes) -> tuple[dict[str, Any], list[str]]:
    """An event of a stream, and what was mended in it. Raises ValueError if it is none."""
    event, mended = mending.read(data)
    if not isinstance(event, dict):
        raise NoEvent("an event of its stream is not a JSON object")
    if error := error_of(event):
        event["error"] = error
    place = misfit(event) if isinstance(event.get("type"), str | None) else "type"
    if place is not None:
        raise NoEvent(f"an event of its stream has an unknown form at {place}")
    return event, mended


def error_of(answer: Mapping[str, Any]) -> Any:
    """The error that an answer or an event is, in whatever shape; None, or what is false, for any other.

    Beside OpenAI's `error`, servers send its fields without that (vLLM before 0.10, the Responses API), and FastAPI's `detail`.
    """
    error = answer.get("error")
    if error or any(answer.get(name) for name in _RESULTS):
        return error
    said = answer.get("message") or detail_of(answer)
    return {**answer, "message": said} if isinstance(said, str | list) else None


def detail_of(error: Mapping[str, Any]) -> Any:
    """FastAPI's `detail`; its list of what is wrong with a request as a text: "messages.0.role: Field required"."""
    detail = error.get("detail")
    found = [_wrong_field(each) for each in detail] if isinstance(detail, list) else []
    return "; ".join(each for each in found if each) if found and all(found) else detail


def _wrong_field(entry: object) -> str:
    """An entry of FastAPI's list. Empty: it is none."""
    place, said = (entry.get("loc"), entry.get("msg")) if isinstance(entry, dict) else (None, None)
    if not isinstance(place, list) or not isinstance(said, str):
        return ""
    return ": ".join(filter(None, (".".join(map(str, place[1:])), said)))  # the first part says that it is in the body


def misfit(answer: Mapping[str, Any]) -> str | None:
    """The place in an answer or an event with an unknown form, such as `choices[0].index`. What a choice says may be missing."""
    place = _of_each(answer.get("choices"), _of_choice)
    return None if place is None else f"choices{place}"


# Each returns the rest of the place, empty for the value itself; None: it fits.
_Misfit = Callable[[Any], str | None]


def _of_each(parts: object, of: _Misfit) -> str | None:
    if parts is None:
        return None
    if not isinstance(parts, list):
        return ""
    found = ((n, of(part)) for n, part in enumerate(parts))
    return next((f"[{n}]{place}" for n, place in found if place is not None), None)


def _of_choice(choice: Any) -> str | None:
    if (place := _of_part(choice)) is not None:
        return place
    found = ((name, _of_message(choice.get(name))) for name in ("message", "delta"))
    return next((f".{name}{place}" for name, place in found if place is not None), None)


def _of_message(message: Any) -> str | None:
    if message is None:
        return None
    if not isinstance(message, dict):
        return ""
    place = _of_each(message.get("tool_calls"), _of_call)
    return None if place is None else f".tool_calls{place}"


def _of_call(call: Any) -> str | None:
    place = _of_part(call)
    return ".function" if place is None and not isinstance(call.get("function"), dict | None) else place


def _of_part(part: Any) -> str | None:
    if not isinstance(part, dict):
        return ""
    return None if isinstance(part.get("index"), int | None) else ".index"
