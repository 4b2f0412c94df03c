"""What of a value may stand in a log. Every line of every process passes here (`app.telemetry`). Pure.

Personal data and secrets are found as in requests. Beside them, these never pass: queries, users and passwords of URLs,
values of headers that authenticate, rows that PostgreSQL quotes in an error, and what an error of Python quotes.
"""

import re
import traceback
from collections.abc import Mapping
from functools import cache
from textwrap import indent

from app.detection import detectors
from app.detection.detectors import Detectors
from app.settings import masked

LEFT_OUT = "…"
_PRIVATE = (
    r"(?:proxy-)?authorization|(?:set-)?cookie|password|secret|idempotency-key"
    r"|(?:x-)?api[-_]key|x-[\w-]{0,40}(?:key|token)"
)
_PRIVATE_FIELD = re.compile(_PRIVATE, re.IGNORECASE)
_HEADER = re.compile(rf"\b({_PRIVATE})(['\"]\s*,\s*|['\"]?\s*[:=]\s*).+", re.IGNORECASE)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[^\s'\"]+", re.IGNORECASE)
_USER = re.compile(r"(\w://)[^/\s'\"<>]*@")
_RUN = re.compile(r"[^\s'\"<>]+")
_BEGINS_URL = re.compile(r"\w://|(?<![\w.])/")
_ROW = re.compile(r"^(DETAIL|CONTEXT|QUERY|STATEMENT):.*$", re.MULTILINE)
_INPUT = re.compile(r"(invalid input (?:syntax|value) for [^:\n]{1,80}: |input_value=).*")  # PostgreSQL, pydantic
_QUOTED = re.compile(r"(?<!\w)(['\"])((?:\\.|(?!\1).)*)(?:\1|\Z)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,39}")
_WORDS = re.compile(r"[A-Za-z]{1,16}(?:[ _.][A-Za-z]{1,16})*")
_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_QUOTE_DATA = (ValueError, LookupError, TypeError, AttributeError, AssertionError)
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


def passed(value: object, name: str = "") -> object:
    """The value of the field `name` as it may be logged. Numbers stay numbers; texts inside lists and mappings are filtered."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if _PRIVATE_FIELD.fullmatch(name):
        return LEFT_OUT
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping):
        return {key: passed(each, str(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [passed(each) for each in value]
    shown = repr(value)
    filtered = message_of(value) if isinstance(value, BaseException) else text(shown)
    return value if filtered == shown else filtered


def text(given: str) -> str:
    """A text as it may be logged."""
    if _WORDS.fullmatch(given) or _ID.fullmatch(given):  # some digits of an id may happen to look like a card
        return given
    given = _RUN.sub(_without_query, _USER.sub(rf"\1{LEFT_OUT}@", masked(given)))
    given = _HEADER.sub(rf"\1\2{LEFT_OUT}", _BEARER.sub(rf"\1 {LEFT_OUT}", given))
    given = _INPUT.sub(rf"\1{LEFT_OUT}", _ROW.sub(rf"\1: {LEFT_OUT}", given))
    return _detectors().scrubbed(given)


def _without_query(run: re.Match[str]) -> str:
    """What stands between spaces and quotes, without the query of a URL in it."""
    url = _BEGINS_URL.search(run[0]) if "?" in run[0] else None
    end = run[0].find("?", url.end()) + 1 if url else 0
    return run[0][:end] + LEFT_OUT if 0 < end < len(run[0]) else run[0]


def message_of(error: BaseException) -> str:
    """The message of an error as it may be logged. Errors of Python quote the data that they complain about: of what they quote,
    only names pass.
    """
    found = str(error)
    if isinstance(error, _QUOTE_DATA):
        found = _QUOTED.sub(lambda quote: quote[0] if _NAME.fullmatch(quote[2]) else LEFT_OUT, found)
    return text(found)


def traceback_of(error: BaseException) -> str:
    """The traceback of an error, of its causes and of those in a group, with messages as they may be logged."""
    return _traceback(error, set()).rstrip("\n")


def _traceback(error: BaseException, seen: set[int]) -> str:
    seen.add(id(error))
    before = ""
    if error.__cause__ is not None and id(error.__cause__) not in seen:
        before = _traceback(error.__cause__, seen) + _CAUSE
    elif error.__context__ is not None and not error.__suppress_context__ and id(error.__context__) not in seen:
        before = _traceback(error.__context__, seen) + _CONTEXT
    frames = "".join(traceback.format_tb(error.__traceback__))
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    message = message_of(error)
    whole = f"{before}Traceback (most recent call last):\n{frames}{name}{': ' if message else ''}{message}\n"
    if isinstance(error, BaseExceptionGroup):
        inner = [_traceback(each, seen) for each in error.exceptions if id(each) not in seen]
        whole += indent("---\n".join(inner), "  | ")
    return whole


@cache
def _detectors() -> Detectors:
    return detectors.built_in()
