"""Classifies an engine's answer: what it means for the item that was sent. Pure.

200 with a whole answer and usage              Done      (choices, embeddings in data, or a response's output)
200 with anything else                         Retry
408 425 429, 5xx, no answer in time            Retry     (429 and 503: the engine is busy, not broken)
401 403 404 405, redirects                     EngineDown: misconfigured; its operator must fix it
500 that says that the engine core died        EngineDown
refused, reset, closed mid-answer              EngineDown
other 4xx                                      Reject: the engine will always refuse this item
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

INVALID = 5006
TIMED_OUT = 3007
FAILED = 5001

# What an error means, without the words of whoever reported it, which may quote a request.
_MEANINGS = {
    TIMED_OUT: "no answer in time",
    3040: "no capacity",
    FAILED: "the engine failed",
    INVALID: "the request is invalid",
    5007: "there is no such model",
}

WITHOUT_USAGE = "engine answered 200 without usage"
ABORT = "abort"  # vLLM's finish_reason of a request that was aborted, which has status 200
ABORTED = "the engine aborted the request"
_CUT = frozenset({"cancelled", "failed", "in_progress", "queued"})  # of a response that is not whole

_MISCONFIGURED = frozenset({401, 403, 404, 405})
_TRY_LATER = frozenset({408, 425, 429})
_BUSY = frozenset({429, 503})
_ANSWERS = ("choices", "data", "output")
_USAGE_NAMES = (
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


class ErrorClass(StrEnum):
    """Why an item failed, in few words that can be counted.

    invalid: the request can never be answered. too_long: it does not fit into the context window. timeout: no answer in time.
    engine: the engine answered with errors until the tries were used up. given_up: its engines or workers died. not_stored: its
    answer could not be stored. lost: its body is gone. failed: anything else.
    """

    INVALID = "invalid"
    TOO_LONG = "too_long"
    TIMEOUT = "timeout"
    ENGINE = "engine"
    GIVEN_UP = "given_up"
    NOT_STORED = "not_stored"
    LOST = "lost"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Retry:
    """May succeed later. `busy`: the engine has no room, which is not the item's fault. `code`: the final error.

    `reason`: for logs. `words`: what the engine wrote, which may quote the request, so only the caller may see it.
    """

    reason: str
    code: int = FAILED
    busy: bool = False
    words: str = ""

    @property
    def message(self) -> str:
        """The error as its caller reads it."""
        return _with_words(self.reason, self.words)


@dataclass(frozen=True, slots=True)
class Reject:
    """Will never succeed: the item's error. `param` and `reason` are OpenAI's fields of an error, None if unknown. `kind`: its
    class, where the code does not tell.
    """

    code: int
    message: str
    param: str | None = None
    reason: str | None = None
    kind: ErrorClass | None = None


@dataclass(frozen=True, slots=True)
class EngineDown:
    """The engine cannot serve any request. `suspect`: it had accepted the item, which may have crashed it. `reason`, `words`: as
    those of Retry.
    """

    reason: str
    suspect: bool
    words: str = ""

    @property
    def message(self) -> str:
        """The error as its caller reads it."""
        return _with_words(self.reason, self.words)


def _with_words(reason: str, words: str) -> str:
    return f"{reason}: {words}" if words else reason


Outcome = Done | Retry | Reject | EngineDown


def meaning(code: int) -> str:
    """What the code of an item's error means, for those who may not read requests."""
    return _MEANINGS.get(code, "failed")


def error_class(outcome: Reject | Retry) -> ErrorClass:
    """The class of an item's error."""
    if isinstance(outcome, Retry):
        return ErrorClass.TIMEOUT if outcome.code == TIMED_OUT else ErrorClass.ENGINE
    return outcome.kind or (ErrorClass.INVALID if outcome.code == INVALID else ErrorClass.FAILED)


def from_response(status: int, body: bytes) -> Outcome:
    """The meaning of a complete HTTP answer."""
    if status == 200:
        return _success(body)
    words, reason = message(body), f"engine answered {status}"
    if status in _MISCONFIGURED or 300 <= status < 400:
        return EngineDown(reason, suspect=False, words=words)
    if status >= 500 and any(mark in body for mark in _CORE_DIED):  # a refusal may quote them
        return EngineDown(f"{reason}: its core died", suspect=True, words=words)
    if status in _TRY_LATER or status >= 500:
        code = TIMED_OUT if status in (408, 504) else FAILED
        return Retry(reason, code, busy=status in _BUSY, words=words)
    if 400 <= status < 500:
        return Reject(INVALID, words or f"HTTP {status}", _param(body))
    return Retry(reason, words=words)


def from_stream_error(error: Mapping[str, Any]) -> Outcome:
    """The meaning of an error event in a stream, as if the engine had answered with its status."""
    code = error.get("code")
    return from_response(code if isinstance(code, int) else 500, orjson.dumps({"error": error}))


def _param(body: bytes) -> str | None:
    """The name of the wrong field in an engine's error, if it has one."""
    with suppress(orjson.JSONDecodeError, KeyError, TypeError, IndexError):
        param = orjson.loads(body)["error"]["param"]
        return param if isinstance(param, str) and param else None
    return None


def message(body: bytes) -> str:
    """The message in an engine's error body, at most 2,000 characters."""
    try:
        value: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body[:2000].decode(errors="replace").strip()
    if isinstance(value, dict):
        inner = value.get("error", value)
        value = inner.get("message", inner) if isinstance(inner, dict) else inner
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text[:2000]


def _success(body: bytes) -> Outcome:
    try:
        answer: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return Retry("engine answered 200 with invalid JSON")
    if not isinstance(answer, dict) or not any(
        isinstance(answer.get(name), list) and answer[name] for name in _ANSWERS
    ):
        return Retry("engine answered 200 without choices")
    if _is_aborted(answer):
        return Retry(ABORTED)
    usage = usage_of(answer)
    return Retry(WITHOUT_USAGE) if usage is None else Done(body, usage)


def _is_aborted(answer: Mapping[str, Any]) -> bool:
    """Whether an answer ended before its time, as its choices or, of a response, its status say."""
    choices = answer.get("choices") or ()
    return answer.get("status") in _CUT or any(
        isinstance(choice, dict) and choice.get("finish_reason") == ABORT for choice in choices
    )


def usage_of(answer: Mapping[str, Any]) -> Usage | None:
    """The token counts of an answer, by the field names of chat completions or of responses; None if it has none."""
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, details, output = _USAGE_NAMES[0] if "prompt_tokens" in usage else _USAGE_NAMES[1]
    cached = usage.get(details)
    return Usage(
        _count(usage.get(prompt)),
        _count(cached.get("cached_tokens") if isinstance(cached, dict) else 0),
        _count(usage.get(output)),
    )


def _count(value: object) -> int:
    """A token count. An invalid value counts as 0, because the answer itself is good."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
