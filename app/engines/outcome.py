"""What an engine's answer means for the item that was sent. Pure.

200 with an answer and usage                   Done      (choices, embeddings in data, or a response's output)
200 with anything else                         Retry
408 425 429, 5xx, no answer in time            Retry     (429 and 503: the engine is busy, not broken)
401 403 404 405, redirects                     EngineDown: its operator has to mend it; no item is at fault
500 of an engine that says its core died       EngineDown
refused, reset, closed mid-answer              EngineDown
other 4xx                                      Reject: the engine refuses this item, now and for ever
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

INVALID = 5006
TIMED_OUT = 3007
FAILED = 5001

_MISCONFIGURED = frozenset({401, 403, 404, 405})
_TRY_LATER = frozenset({408, 425, 429})
_BUSY = frozenset({429, 503})
_ANSWERS = ("choices", "data", "output")
_WORDS = (
    ("prompt_tokens", "prompt_tokens_details", "completion_tokens"),
    ("input_tokens", "input_tokens_details", "output_tokens"),
)
_CORE_DIED = (b"EngineCore encountered an issue", b"EngineDeadError")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that the engine counted for one item."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """The engine's answer, verbatim."""

    body: bytes
    usage: Usage


@dataclass(frozen=True, slots=True)
class Retry:
    """May succeed later. `busy`: the engine has no room now, which is no fault of the item. `code` if it never does."""

    reason: str
    code: int = FAILED
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Reject:
    """Will never succeed: the item's error. `param`, `reason`: what is wrong with it, in OpenAI's words, where that is known."""

    code: int
    message: str
    param: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class EngineDown:
    """The engine cannot serve anyone. `suspect`: it had taken the item, which may be what brought it down."""

    reason: str
    suspect: bool


Outcome = Done | Retry | Reject | EngineDown


def from_response(status: int, body: bytes) -> Outcome:
    """The meaning of a complete HTTP answer."""
    if status == 200:
        return _success(body)
    said = message(body) or f"HTTP {status}"
    if status in _MISCONFIGURED or 300 <= status < 400:
        return EngineDown(f"engine answered {status}: {said}", suspect=False)
    if any(mark in body for mark in _CORE_DIED):
        return EngineDown(said, suspect=True)
    if status in _TRY_LATER or status >= 500:
        code = TIMED_OUT if status in (408, 504) else FAILED
        return Retry(f"engine answered {status}: {said}", code, busy=status in _BUSY)
    if 400 <= status < 500:
        return Reject(INVALID, said, _param(body))
    return Retry(f"engine answered {status}: {said}")


def from_stream_error(error: Mapping[str, Any]) -> Outcome:
    """The meaning of an error event in a stream, as if the engine had answered with its status."""
    code = error.get("code")
    return from_response(code if isinstance(code, int) else 500, orjson.dumps({"error": error}))


def _param(body: bytes) -> str | None:
    """The field that the engine says is wrong."""
    with suppress(orjson.JSONDecodeError, KeyError, TypeError, IndexError):
        param = orjson.loads(body)["error"]["param"]
        return param if isinstance(param, str) and param else None
    return None


def message(body: bytes) -> str:
    """The engine's own words in an error body, at most 2,000 characters."""
    try:
        said: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body[:2000].decode(errors="replace").strip()
    if isinstance(said, dict):
        inner = said.get("error", said)
        said = inner.get("message", inner) if isinstance(inner, dict) else inner
    text = said if isinstance(said, str) else orjson.dumps(said).decode()
    return text[:2000]


def _success(body: bytes) -> Outcome:
    try:
        answer: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return Retry("engine answered 200 with what is no JSON")
    if not isinstance(answer, dict) or not any(
        isinstance(answer.get(name), list) and answer[name] for name in _ANSWERS
    ):
        return Retry("engine answered 200 without choices")
    usage = usage_of(answer)
    return Retry("engine answered 200 without usage") if usage is None else Done(body, usage)


def usage_of(answer: Mapping[str, Any]) -> Usage | None:
    """The token counts of an answer, in the words of chat completions or of responses; None where it has none."""
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, details, output = _WORDS[0] if "prompt_tokens" in usage else _WORDS[1]
    cached = usage.get(details)
    return Usage(
        _count(usage.get(prompt)),
        _count(cached.get("cached_tokens") if isinstance(cached, dict) else 0),
        _count(usage.get(output)),
    )


def _count(value: object) -> int:
    """A token count; whatever is none counts 0, since the answer itself is good."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
