"""Whose fault it is that an answer has no result, by its status and the kind of its body: one table. Pure.

    status                      the engine's JSON    text or nothing    a page (HTML, XML)
    200 without a result        see `outcome`        doubtful           doubtful
    other 1xx to 3xx            doubtful             doubtful           doubtful
    401 403 404 405 407 511     doubtful             doubtful           doubtful
    413 414 431                 the request's        the request's      the request's
    429                         the engine is full   full               doubtful
    408 425                     the engine's         the engine's       doubtful
    other 4xx                   the request's        the request's      doubtful
    501                         the request's        doubtful           doubtful
    503                         the engine is full   doubtful           doubtful
    502 504, 520 to 530         the engine's         doubtful           doubtful
    other 5xx                   the engine's         the engine's       doubtful

A doubtful answer may come from the engine, which then cannot be used by anybody, or from something between it and us that
refuses this one request: a proxy, a firewall, the end of a TLS tunnel. A one-token request tells: if it fails too, the engine
cannot be used, and nobody is charged; if it is answered, the fault lies in between, and the request is charged after some tries.
"""

from collections.abc import Container, Iterator
from enum import Enum, StrEnum, auto
from html import unescape
from string import ascii_lowercase, ascii_uppercase

import orjson

_LINE = 200  # characters of a line that is shown
_HIDDEN = (
    ("<!--", "-->"),
    ("<script", "</script"),
    ("<style", "</style"),
)  # the beginning and the end of what is not shown
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)  # keeps every place where it is, unlike `lower`
_BLANK = b"\xef\xbb\xbf \t\r\n"


class Fault(StrEnum):
    """Whose fault it is. FULL: the engine has no room, which is nobody's fault."""

    REQUEST = "request"
    ENGINE = "engine"
    FULL = "full"
    DOUBTFUL = "doubtful"


class BodyKind(Enum):
    """JSON is what an engine writes. A page is XML or HTML, which no engine writes."""

    JSON = auto()
    TEXT = auto()
    PAGE = auto()


_R, _E, _F, _D = Fault.REQUEST, Fault.ENGINE, Fault.FULL, Fault.DOUBTFUL
_KINDS = (BodyKind.JSON, BodyKind.TEXT, BodyKind.PAGE)
_TABLE: tuple[tuple[Container[int], tuple[Fault, Fault, Fault]], ...] = (
    (range(400), (_D, _D, _D)),
    ((401, 403, 404, 405, 407, 511), (_D, _D, _D)),
    ((413, 414, 431), (_R, _R, _R)),
    ((429,), (_F, _F, _D)),
    ((408, 425), (_E, _E, _D)),
    (range(400, 500), (_R, _R, _D)),
    ((501,), (_R, _D, _D)),
    ((503,), (_F, _D, _D)),
    ((502, 504, *range(520, 531)), (_E, _D, _D)),
)
_OTHERS = (_E, _E, _D)


def fault_of(status: int, kind: BodyKind) -> Fault:
    """Whose fault an answer is that has no result."""
    row = next((faults for statuses, faults in _TABLE if status in statuses), _OTHERS)
    return row[_KINDS.index(kind)]


def kind_of(body: bytes) -> BodyKind:
    """The kind of a body, whatever its `Content-Type` says."""
    if body.lstrip(_BLANK).startswith(b"<"):
        return BodyKind.PAGE
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return BodyKind.TEXT
    return BodyKind.JSON


def first_line(text: str) -> str:
    """The first line of a text that is not empty, or of what a page shows; at most 200 characters."""
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        text = unescape("\n".join(_shown(text)))
    lines = (" ".join(line.split()) for line in text.splitlines())
    return next((line for line in lines if line), "")[:_LINE]


def _shown(page: str) -> Iterator[str]:
    """The texts between the tags of a page. What begins and does not end hides the rest, so the time is linear."""
    lower, at = page.translate(_LOWER), 0
    while at >= 0:
        tag = page.find("<", at)
        yield page[at : tag if tag >= 0 else None]
        if tag < 0:
            return
        end = next((end for begin, end in _HIDDEN if lower.startswith(begin, tag)), ">")
        at = lower.find(end, tag)
        at = page.find(">", at) + 1 or -1 if at >= 0 else -1
