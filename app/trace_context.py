"""W3C trace context (https://www.w3.org/TR/trace-context/): what comes in with a request goes out with what it causes. Pure.

`app.tracing` records the spans. Without it, each hop keeps the caller's trace id and flags and names itself as the parent.
"""

import random
import re
from contextvars import ContextVar
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Self

HEADER = "traceparent"
_FORM = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED = 1
_ids = random.SystemRandom()

current: ContextVar[str | None] = ContextVar("trace_id", default=None)
"""The trace id of the work that this task does. Log lines have it."""


@dataclass(frozen=True, slots=True)
class SpanContext:
    """The name of a span: 32 and 16 lower-case hex digits. `sampled`: it is recorded, and what it causes should be."""

    trace_id: str
    span_id: str
    sampled: bool = True

    @classmethod
    def new(cls, parent: "SpanContext | None" = None) -> Self:
        """The context of a new span below `parent`; without one it begins a trace that is sampled."""
        if parent is None:
            return cls(f"{_ids.randrange(1, 1 << 128):032x}", _span_id())
        return cls(parent.trace_id, _span_id(), parent.sampled)

    @property
    def header(self) -> str:
        """Its `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"

    def unsampled(self) -> Self:
        """The same context, not recorded."""
        return replace(self, sampled=False)

    def named(self, name: str) -> Self:
        """The context of the one span of this name below this one. Every process finds the same id."""
        digest = blake2b(f"{self.trace_id} {self.span_id} {name}".encode(), digest_size=8)
        return replace(self, span_id=digest.hexdigest())


def parse(header: str | None) -> str | None:
    """The header if it is valid, else None: a broken one is as good as none."""
    return header if header is not None and _FORM.fullmatch(header) else None


def context_of(header: str | None) -> SpanContext | None:
    """The context that a header names; None without a valid one."""
    found = _FORM.fullmatch(header or "")
    return SpanContext(found[1], found[2], bool(int(found[3], 16) & _SAMPLED)) if found else None


def trace_id(header: str | None) -> str | None:
    """The trace id in a header; None without a valid one."""
    found = _FORM.fullmatch(header or "")
    return found[1] if found else None


def enter(header: str | None) -> None:
    """From now on, log lines of this task have the trace id of this header, or none."""
    current.set(trace_id(header))


def onward(traceparent: str | None) -> dict[str, str]:
    """The header of a call made on behalf of `traceparent`, when no span of ours is recorded; none without one."""
    found = _FORM.fullmatch(traceparent or "")
    return {HEADER: f"00-{found[1]}-{_span_id()}-{found[3]}"} if found else {}


def sent(traceparent: str | None) -> dict[str, str]:
    """The header that names exactly this span as the parent; none without one."""
    return {HEADER: traceparent} if traceparent else {}


def _span_id() -> str:
    return f"{random.randrange(1, 1 << 64):016x}"  # noqa: S311  (a name, no secret)
