"""The events that gateways and doors send to a worker: about synchronous requests, which change its `Arrivals`, and that work
has come.

Gateways and doors may be newer than the worker: fields and events that it does not know are ignored.
"""

from collections.abc import Callable
from typing import Annotated, Literal

import structlog
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from app import clock
from app.headroom.arrivals import Arrivals

log = structlog.get_logger()

Id = Annotated[str, Field(min_length=1, max_length=64)]
Tokens = Annotated[int, Field(ge=0, le=2**31)]
Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Event(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _OfRequest(_Event):
    id: Id


class RequestArrived(_OfRequest):
    """A request is about to be sent to the engine."""

    event: Literal["arrived"]
    kind: Literal["sync"] = Field(alias="class")
    prompt_tokens: Tokens
    max_tokens: Tokens


class FirstToken(_OfRequest):
    """The request has its first token. `ttft_ms`: null if the gateway could not measure it."""

    event: Literal["first_token"]
    ttft_ms: Milliseconds | None = None


class RequestFinished(_OfRequest):
    """The request has ended, with or without an error."""

    event: Literal["finished"]
    output_tokens: Tokens | None = None
    itl_p50_ms: Milliseconds | None = None
    itl_p95_ms: Milliseconds | None = None


class Wake(_Event):
    """Work has come for the pool of this engine. Only a worker that reports to be hungry gets it, since older ones refuse it."""

    event: Literal["wake"]


Event = RequestArrived | FirstToken | RequestFinished | Wake
# pydantic keeps some 16,000 strings that it has parsed for the next time; an id comes for one request only.
_EVENT: TypeAdapter[Event] = TypeAdapter(
    Annotated[Event, Field(discriminator="event")], config=ConfigDict(cache_strings="keys")
)


class ArrivalEvents:
    """Feeds `arrivals`, calls `on_arrival` at once when a request is announced, and `on_wake` when work has come.

    `unknown`: how many events it did not know; the first one is logged.
    """

    def __init__(
        self, arrivals: Arrivals, on_arrival: Callable[[], None], on_wake: Callable[[], None] = lambda: None
    ) -> None:
        self._arrivals = arrivals
        self._on_arrival = on_arrival
        self._on_wake = on_wake
        self.unknown = 0

    def take(self, line: bytes) -> None:
        """Take over one event. Raises pydantic's ValidationError."""
        try:
            event, now = _EVENT.validate_json(line), clock.monotonic()
        except ValidationError as error:
            self._note_unknown(error)
            return
        match event:
            case RequestArrived():
                self._arrivals.arrived(event.id, event.prompt_tokens, event.max_tokens, now)
                self._on_arrival()
            case FirstToken():
                self._arrivals.first_token(event.id, now, event.ttft_ms)
            case RequestFinished():
                self._arrivals.finished(event.id, now, event.itl_p50_ms, event.itl_p95_ms)
            case Wake():
                self._on_wake()

    def _note_unknown(self, error: ValidationError) -> None:
        """Count an event that we do not know. Raises any other error."""
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] != "union_tag_invalid":
            raise error
        if not self.unknown:
            log.info("arrivals.unknown_event", error=first["msg"])
        self.unknown += 1
