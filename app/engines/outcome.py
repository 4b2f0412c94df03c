"""Classifies an engine's answer: what it means for the item that was sent. Pure.

200 with a whole answer                        Done      (choices, embeddings in data, or a response's output)
    that is malformed or lacks the usage       Done      mended and marked (`mending`)
200 with an error                              as with the status that the error names, else 500
200 with JSON that has no result               Retry     once more: it cannot be stored
    or that cannot be judged                   Retry     likewise
200 that was aborted                           Retry
no answer in time                              Retry
500 that says that the engine core died        EngineDown
refused, reset, closed mid-answer              EngineDown

For any other answer, `answer_faults` says whose fault it is:

the request's                                  Reject    the engine will always refuse this item
the engine's                                   Retry
the engine is full                             Retry     busy: not the item's fault
doubtful                                       Doubt     whoever can ask the engine finds out; `judged` says what it meant
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import Any

import orjson

from app.engines import mending
from app.engines.answer_faults import BodyKind, Fault, fault_of, first_line, kind_of
from app.engines.answer_shape import NoEvent, detail_of, error_of, misfit
from app.engines.json_text import JsonText

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

BETWEEN_TRIES = 4  # of a request that something between refuses: the first one, and three more
UNSTORABLE_TRIES = 2  # of a request whose answer cannot be stored
# What reading an answer raises that has another shape than any we know. What orjson cannot write is a TypeError.
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
# The reasons with which servers end an answer that is not whole, with status 200. Any other one may be of a whole answer.
_ABORTS = frozenset(
    {
        "abort",  # vLLM, SGLang
        "aborted",
        "cancelled",  # TensorRT-LLM
        "canceled",
        "error",
        "failed",
        "insufficient_system_resource",
        "internal_error",
        "not_finished",
        "timed_out",
        "timeout",
    }
)
ABORTED = "the engine aborted the request"
_CUT = frozenset({"cancelled", "failed", "in_progress", "queued"})  # of a response that is not whole

_USAGE_NAMES = (("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens"))
_PART, _MOST_PARTS = re.compile("[a-z][a-z0-9_]{0,59}"), 500
# Parts that servers write beside the counts, and what they are called there.
_INPUTS_BESIDE = {"prompt_cache_hit_tokens": "cached_tokens", "cached_tokens": "cached_tokens"}
_OUTPUTS_BESIDE = {"reasoning_tokens": "reasoning_tokens"}
_LONGEST = 2000  # characters of an engine's words
_MISSING = frozenset({404, 405, 501})  # how a server says that it lacks a route
_LARGEST_COUNT = 2**31 - 1
_COUNT = re.compile("[0-9]{1,10}")
_CORE_DIED = (b"EngineCore encountered an issue", b"EngineDeadError")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that the engine counted for one item. `details`: their parts beside the cached ones, such as
    `output.reasoning_tokens`, as far as they are not 0.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    details: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Done:
    """The engine's answer, verbatim unless it was `mended`: what was, in words."""

    body: bytes
    usage: Usage
    mended: tuple[str, ...] = ()


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

    `reason`: for logs. `words`: what the engine wrote, which may quote the request, so only the caller may see it. `tries`: so
    many are enough, and no later round follows; None: as many as the operator has set. `kind`: see Reject. `status`: of HTTP;
    None: there was no answer, or it was a good one.
    """

    reason: str
    code: int = FAILED
    busy: bool = False
    words: str = ""
    tries: int | None = None
    kind: ErrorClass | None = None
    status: int | None = field(default=None, compare=False)

    @property
    def message(self) -> str:
        """The error as its caller reads it."""
        return _with_words(self.reason, self.words)

    @property
    def unanswered(self) -> bool:
        """Whether nobody has said anything in our own time limit. Whoever answers 408 or 504 has."""
        return self.code == TIMED_OUT and self.status is None


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
    those of Retry. `refusal`: it is there, but this is how it answers a one-token request too.
    """

    reason: str
    suspect: bool
    words: str = ""
    refusal: "Doubt | Retry | None" = None

    @property
    def message(self) -> str:
        """The error as its caller reads it."""
        return _with_words(self.reason, self.words)


@dataclass(frozen=True, slots=True)
class Doubt:
    """The engine cannot be used, or something between refuses this request. `status`: of HTTP; None: there was no connection.

    `words`: the first line of the body, or why there is no connection; only the caller may see it.
    """

    status: int | None
    words: str = ""
    kind: BodyKind = BodyKind.TEXT

    @property
    def reason(self) -> str:
        """What happened, for logs."""
        return "no connection could be made" if self.status is None else f"HTTP {self.status}"

    @property
    def message(self) -> str:
        """The error as its caller reads it, once the engine is known to work."""
        if self.status is None:
            return _with_words("something between worker and engine lets no connection through", self.words)
        return _with_words(
            f"HTTP {self.status} from something between worker and engine (a proxy, a firewall)", self.words
        )

    @property
    def refuses_key(self) -> bool:
        """Whether the engine itself seems to refuse our key."""
        return self.kind is BodyKind.JSON and self.status == 401

    def lacks(self, route: str) -> str | None:
        """The error if it says that the engine does not have this route; None if it does not say so."""
        if self.status not in _MISSING:
            return None
        said = "" if self.kind is not BodyKind.JSON or self.words == "Not Found" else f" ({self.words})"
        return f"the engine does not serve {route}{said}"


def _with_words(reason: str, words: str) -> str:
    return f"{reason}: {words}" if words else reason


Outcome = Done | Retry | Reject | EngineDown | Doubt
Settled = Done | Retry | Reject | EngineDown  # there is no doubt left


def meaning(code: int) -> str:
    """What the code of an item's error means, for those who may not read requests."""
    return _MEANINGS.get(code, "failed")


def error_class(outcome: Reject | Retry) -> ErrorClass:
    """The class of an item's error."""
    if isinstance(outcome, Retry):
        return outcome.kind or (ErrorClass.TIMEOUT if outcome.code == TIMED_OUT else ErrorClass.ENGINE)
    return outcome.kind or (ErrorClass.INVALID if outcome.code == INVALID else ErrorClass.FAILED)


def from_response(status: int, body: bytes, prompt_tokens: int = 1) -> Outcome:
    """The meaning of a complete HTTP answer, whatever it is. `prompt_tokens`: an estimate, for an answer without usage."""
    try:
        return _success(body, prompt_tokens) if status == 200 else _failure(status, body)
    except UNREADABLE as error:
        return unreadable(error)


def marked(outcome: Outcome, mended: Sequence[str]) -> Outcome:
    """The outcome, whose answer says what was mended in its stream, too."""
    if not mended or not isinstance(outcome, Done):
        return outcome
    every = [*mended, *outcome.mended]
    return replace(outcome, body=mending.marked(outcome.body, every), mended=tuple(every))


def unreadable(error: Exception, answer: str = "") -> Retry:
    """The outcome of an answer that has another shape than any we know: reading it has raised this. `answer`: its words."""
    words = str(error) if isinstance(error, NoEvent) else "it has another form than any that is known"
    return _unstorable(f"the engine's answer cannot be read: {words}", answer)


def without_result(words: str = "") -> Retry:
    """The outcome of a good answer with nothing in it. `words`: what is in it instead."""
    return _unstorable("engine answered 200 without choices", words)


def _unstorable(reason: str, words: str = "") -> Retry:
    return Retry(reason, words=words, tries=UNSTORABLE_TRIES, kind=ErrorClass.NOT_STORED)


def _failure(status: int, body: bytes) -> Outcome:
    kind, reason = kind_of(body), f"engine answered {status}"
    words = first_line(body[:_LONGEST].decode(errors="replace")) if kind is BodyKind.PAGE else message(body)
    if status >= 500 and any(mark in body for mark in _CORE_DIED):  # a refusal may quote them
        return EngineDown(f"{reason}: its core died", suspect=True, words=words)
    code = TIMED_OUT if status in (408, 504) else FAILED
    match fault_of(status, kind):
        case Fault.REQUEST:
            return Reject(INVALID, _refused(status, kind, words), _param(body))
        case Fault.FULL:
            return Retry(reason, busy=True, words=words, status=status)
        case Fault.ENGINE:
            return Retry(reason, code, words=words, status=status)
        case Fault.DOUBTFUL:
            return Doubt(status, first_line(words), kind)


def judged(doubt: Doubt, route: str, *, served: bool) -> Retry | Reject:
    """What a doubtful answer meant, as the engine answers others. `served`: it is known to serve this route."""
    if doubt.status in _MISSING and served and doubt.kind is BodyKind.JSON:
        return Reject(INVALID, doubt.words or f"HTTP {doubt.status}")
    if not served and (message := doubt.lacks(route)) is not None:
        return Reject(INVALID, message)
    code = TIMED_OUT if doubt.status in (408, 504) else FAILED
    reason = doubt.message.removesuffix(f": {doubt.words}")
    return Retry(reason, code, words=doubt.words, tries=BETWEEN_TRIES, status=doubt.status)


def _refused(status: int, kind: BodyKind, words: str) -> str:
    """The message of a refusal; with its status if it is not in the engine's own words."""
    return words if words and kind is BodyKind.JSON else _with_words(f"HTTP {status}", words)


def from_stream_error(error: object) -> Outcome:
    """The meaning of an error in a stream, or in an answer with the status 200: as if the engine had answered with its status."""
    code = error.get("code") if isinstance(error, Mapping) else None
    status = code if isinstance(code, int) and code in range(300, 600) else 500
    try:
        body = orjson.dumps({"error": error})
    except TypeError:
        body = orjson.dumps({"error": "its error cannot be read"})
    return from_response(status, body)


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
        return body[:_LONGEST].decode(errors="replace").strip()
    if isinstance(value, dict):
        inner = value.get("error", value)
        value = inner.get("message", detail_of(inner) or inner) if isinstance(inner, dict) else inner
    if isinstance(value, str):
        return value[:_LONGEST]
    try:
        return orjson.dumps(value)[: 4 * _LONGEST].decode(errors="ignore")[:_LONGEST]
    except TypeError:  # it is nested too deeply to be written
        return body[:_LONGEST].decode(errors="replace").strip()


def _success(body: bytes, prompt_tokens: int) -> Outcome:
    try:
        answer, mended = mending.read(body)
    except mending.TooDeep as deep:
        return _unstorable(str(deep))
    except ValueError:
        return Doubt(200, first_line(body[:_LONGEST].decode(errors="replace")), kind_of(body))
    if (outcome := _without_success(answer, body)) is not None:
        return outcome
    body = orjson.dumps(answer) if mended else body
    usage = usage_of(answer)
    if usage is None:
        estimated = {"usage": mending.estimated_usage(answer, prompt_tokens)}
        body, usage = bytes(JsonText(body).set(estimated)), usage_of(estimated) or Usage()
        mended.append(mending.NO_USAGE)
    return Done(mending.marked(body, mended) if mended else body, usage, tuple(mended))


def _without_success(answer: Any, body: bytes) -> Outcome | None:
    """What an answer says instead of a result that can be kept; None: it has one."""
    if not isinstance(answer, dict):
        return without_result(message(body))
    if error := error_of(answer):
        return from_stream_error(error)
    if (place := misfit(answer)) is not None:
        return unreadable(NoEvent(f"it has an unknown form at {place}"), message(body))
    if not _has_result(answer):
        return without_result(message(body))
    return Retry(ABORTED) if is_aborted(answer) else None


def _has_result(answer: Mapping[str, Any]) -> bool:
    """Whether there is something to be kept: choices with contents, embeddings, or what a response has put out."""
    choices, output = answer.get("choices"), answer.get("output")
    if isinstance(choices, list) and choices:
        return all(isinstance(each.get("message"), dict) or isinstance(each.get("text"), str) for each in choices)
    if isinstance(output, list):
        return bool(output) or answer.get("status") in ("completed", "incomplete", *_CUT)
    data = answer.get("data")
    return (
        isinstance(data, list)
        and bool(data)
        and all(isinstance(entry, dict) and "embedding" in entry for entry in data)
    )


def is_abort(reason: object) -> bool:
    """Whether an answer with this `finish_reason`, which may be anything, is not whole."""
    if isinstance(reason, dict):  # SGLang's own form
        reason = reason.get("type")
    return isinstance(reason, str) and reason.lower() in _ABORTS


def is_aborted(answer: Mapping[str, Any]) -> bool:
    """Whether an answer, or a part of one, ended before its time, as its choices or, of a response, its status say."""
    choices = answer.get("choices") or ()
    status = answer.get("status")
    details = answer.get("incomplete_details")
    return (
        (isinstance(status, str) and status in _CUT)
        or (isinstance(details, dict) and is_abort(details.get("reason")))
        or any(isinstance(choice, dict) and is_abort(choice.get("finish_reason")) for choice in choices)
    )


def usage_of(answer: Mapping[str, Any]) -> Usage | None:
    """The token counts of an answer, by the field names of chat completions or of responses; None if it has none."""
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, output = _USAGE_NAMES[0] if "prompt_tokens" in usage else _USAGE_NAMES[1]
    inputs, outputs = usage.get(f"{prompt}_details"), usage.get(f"{output}_details")
    parts = _parts("input", inputs, usage, _INPUTS_BESIDE) | _parts("output", outputs, usage, _OUTPUTS_BESIDE)
    cached = parts.pop("input.cached_tokens", 0)
    return Usage(_count(usage.get(prompt)), cached, _count(usage.get(output)), parts)


def _parts(of: str, given: object, usage: Mapping[str, Any], beside: Mapping[str, str]) -> dict[str, int]:
    """The parts of a count that are not 0, of which only a broken server has more than `_MOST_PARTS`: the first of them count.

    `beside`: what servers write into `usage` itself, which counts where the details do not have it.
    """
    details = {part: usage[name] for name, part in beside.items() if name in usage}
    details |= given if isinstance(given, dict) else {}
    named = ((f"{of}.{name}", n) for name, count in details.items() if (n := _count(count)) and _PART.fullmatch(name))
    return dict(islice(named, _MOST_PARTS))


def _count(value: object) -> int:
    """A token count, also one written as 10.0 or "10". An invalid value counts as 0, because the answer itself is good."""
    if isinstance(value, str):
        value = int(value) if _COUNT.fullmatch(value) else 0
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    return whole if isinstance(whole, int) and not isinstance(whole, bool) and 0 < whole <= _LARGEST_COUNT else 0
