"""A span as plain data. It is made when what it tells of has ended, so that one may decide then whether to record it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Self

from app.trace_context import SpanContext, context_of

Value = str | bool | int | float | Sequence[str] | Sequence[int]


class Kind(Enum):
    """What a span is in a call between processes."""

    INTERNAL = 0
    SERVER = 1
    CLIENT = 2
    PRODUCER = 3
    CONSUMER = 4


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened at one time during a span."""

    name: str
    at_ns: int
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span that has ended. Times are nanoseconds of the wall clock. `error`: its type; None: it did not fail.

    An attribute whose value is None is left out.
    """

    name: str
    kind: Kind
    context: SpanContext
    parent: SpanContext | None = None
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value | None] = field(default_factory=dict)
    links: Sequence[SpanContext] = ()
    moments: Sequence[Moment] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """The span of a request to us, which has begun at `start_ns`. `parent`: the caller's."""

    context: SpanContext
    parent: SpanContext | None
    start_ns: int

    @classmethod
    def of(cls, header: str | None, start_ns: int) -> Self:
        """The span of a request with this `traceparent`, if it has one."""
        parent = context_of(header)
        return cls(SpanContext.new(parent), parent, start_ns)

    @property
    def declined(self) -> bool:
        """Whether the caller has decided that its trace is not recorded."""
        return self.parent is not None and not self.parent.sampled

    def sampled_if(self, chosen: bool) -> Self:
        """Without a decision of the caller it is recorded if it is chosen."""
        return self if self.parent is not None or chosen else replace(self, context=self.context.unsampled())

    def again(self) -> Self:
        """A further span for the same request, beside this one."""
        parent = self.parent or self.context
        return replace(self, context=replace(SpanContext.new(parent), sampled=self.context.sampled))
