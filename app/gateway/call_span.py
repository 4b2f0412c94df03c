"""The span of a synchronous request: who answered it, how fast, and what it used."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from app import clock
from app.engines.outcome import Usage
from app.errors import SlackwaterError
from app.trace_context import onward, sent
from app.tracing import names, recorder
from app.tracing.span import Kind, Moment, Origin, Span, Value

CALLER_GONE = "caller_gone"


@dataclass
class CallSpan:
    """What is known of a request so far. `error`: its type, if it failed."""

    name: str
    attributes: dict[str, Value | None]
    moments: list[Moment] = field(default_factory=list)
    error: str | None = None
    status: int | None = None

    def sent(self, engine: str) -> None:
        """The request goes to this engine."""
        self.attributes[names.ENGINE] = engine
        self._note("sent", {names.ENGINE: engine})

    def token(self) -> None:
        """The first token has come."""
        self._note("first token", {})

    def used(self, usage: Usage | None) -> None:
        """The engine has counted the tokens."""
        if usage is not None:
            self.attributes |= {
                names.GEN_AI_INPUT_TOKENS: usage.prompt_tokens,
                names.GEN_AI_OUTPUT_TOKENS: usage.completion_tokens,
                names.GEN_AI_CACHED_TOKENS: usage.cached_tokens,
            }

    def failed(self, error: SlackwaterError) -> None:
        """The caller gets this error."""
        self.error, self.status = type(error).__name__, error.status

    @property
    def our_failure(self) -> bool:
        """Whether it failed through no fault of the caller."""
        return self.error is not None and (self.status is None or self.status >= 500) and self.error != CALLER_GONE

    def _note(self, name: str, attributes: dict[str, Value]) -> None:
        self.moments.append(Moment(name, clock.wall_ns(), attributes))


class _NoSpan(CallSpan):
    """Keeps nothing: no spans are recorded."""

    def sent(self, engine: str) -> None:
        """Nothing."""

    def token(self) -> None:
        """Nothing."""

    def used(self, usage: Usage | None) -> None:
        """Nothing."""

    def failed(self, error: SlackwaterError) -> None:
        """Nothing."""


_NO_SPAN = _NoSpan("", {})


@asynccontextmanager
async def spanning(
    origin: Origin | None, model: str, endpoint: str, workflow: str | None, *, streamed: bool
) -> AsyncIterator[CallSpan]:
    """Record the span of a request when the block ends. A failure of ours is recorded even if the request is not sampled,
    unless its caller has declined.
    """
    if origin is None:
        yield _NO_SPAN
        return
    operation = names.operation(endpoint)
    span = CallSpan(
        f"{operation} {model}",
        {
            names.GEN_AI_OPERATION: operation,
            names.GEN_AI_PROVIDER: names.PROVIDER,
            names.GEN_AI_MODEL: model,
            names.GEN_AI_WORKFLOW: workflow,
            names.STREAMED: streamed,
        },
    )
    try:
        yield span
    except SlackwaterError as error:
        span.failed(error)
        raise
    except BaseException:
        span.error = span.error or CALLER_GONE
        raise
    finally:
        _record(origin, span)


def _record(origin: Origin, span: CallSpan) -> None:
    context = origin.context
    if span.our_failure and not origin.declined:
        context = replace(context, sampled=True)
    recorder.record(
        Span(
            name=span.name,
            kind=Kind.SERVER,
            context=context,
            parent=origin.parent,
            start_ns=origin.start_ns,
            end_ns=clock.wall_ns(),
            attributes=span.attributes | {names.ERROR: span.error, names.HTTP_STATUS: span.status},
            moments=span.moments,
            error=span.error if span.our_failure else None,
        )
    )


def headers(origin: Origin | None, traceparent: str | None) -> dict[str, str]:
    """The trace context for the engine: our span, or without one the caller's."""
    return sent(origin.context.header) if origin is not None else onward(traceparent)
