"""The events about synchronous requests that gateways and doors send to a worker, and how they change its `Arrivals`."""

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from app import clock
from app.headroom.arrivals import Arrivals

Id = Annotated[str, Field(min_length=1, max_length=64)]
Tokens = Annotated[int, Field(ge=0, le=2**31)]
Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Event(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: Id


class RequestArrived(_Event):
    """A request is about to be sent to the engine."""

    event: Literal["arrived"]
    kind: Literal["sync"] = Field(alias="class")
    prompt_tokens: Tokens
    max_tokens: Tokens


class FirstToken(_Event):
    """The request has its first token. `ttft_ms`: null if the gateway could not measure it."""

    event: Literal["first_token"]
    ttft_ms: Milliseconds | None = None


class RequestFinished(_Event):
    """The request has ended, with or without an error."""

    event: Literal["finished"]
    output_tokens: Tokens | None = None
    itl_p50_ms: Milliseconds | None = None
    itl_p95_ms: Milliseconds | None = None


Event = RequestArrived | FirstToken | RequestFinished
_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


class ArrivalEvents:
    """Feeds `arrivals`, and calls `on_arrival` at once when a request is announced."""

    def __init__(self, arrivals: Arrivals, on_arrival: Callable[[], None]) -> None:
        self._arrivals = arrivals
        self._on_arrival = on_arrival

    def take(self, line: bytes) -> None:
        """Take over one event. Raises pydantic's ValidationError."""
        event, now = _EVENT.validate_json(line), clock.monotonic()
        match event:
            case RequestArrived():
                self._arrivals.arrived(event.id, event.prompt_tokens, event.max_tokens, now)
                self._on_arrival()
            case FirstToken():
                self._arrivals.first_token(event.id, now, event.ttft_ms)
            case RequestFinished():
                self._arrivals.finished(event.id, now, event.itl_p50_ms, event.itl_p95_ms)
