"""What a call has used in engines, and where that is booked. Whatever ran is metered, also where nobody got the answer."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, Self, TypeVar

from aiohttp import payload
from aiohttp.abc import AbstractStreamWriter

from app import clock
from app.budgets.calls import ReservedCall
from app.engines.catalogue import Model
from app.engines.outcome import Doubt, EngineDown, Outcome, Retry, Usage
from app.gateway.request_timer import RequestTimer
from app.metering import sessions
from app.metering.lines import LineParts
from app.metering.sync_usage import SyncUsage
from app.usage_counts import UsageCounts

_USUAL_PACE = 25.0  # tokens of one answer in a second, until the first one of the model has ended
_KEPT = 0.9  # of what was seen before, at each answer


class Call(Protocol):
    """What a bill needs of a call: see `SyncCall`."""

    @property
    def model(self) -> Model:
        """That answers it."""

    @property
    def tenant_id(self) -> int:
        """Its account."""

    @property
    def prompt_tokens(self) -> int:
        """An estimate."""

    @property
    def answer_tokens(self) -> int:
        """The most."""

    @property
    def session(self) -> str | None:
        """To which it belongs."""

    @property
    def line(self) -> LineParts | None:
        """Where it is booked; None: nowhere."""


C = TypeVar("C", bound=Call)


class Paces:
    """How fast answers of each model come in this process, from when they were sent to their end."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}  # tokens and seconds

    def note(self, model: str, tokens: int, seconds: float) -> None:
        """Learn from an answer."""
        before, took = self._seen.get(model, (0.0, 0.0))
        self._seen[model] = before * _KEPT + tokens, took * _KEPT + seconds

    def tokens(self, model: str, seconds: float) -> int:
        """How many tokens an answer has after so many seconds."""
        seen, took = self._seen.get(model, (0.0, 0.0))
        return round(seconds * (seen / took if took else _USUAL_PACE))


@dataclass(frozen=True, slots=True)
class Books:
    """Where the bills of one process are booked. `secret`: the master key."""

    usage: SyncUsage
    secret: bytes
    paces: Paces = field(default_factory=Paces)


@dataclass(slots=True)
class CallBill(Generic[C]):
    """Of one call; leave its block when it is over. `sent_at`: when it was written to the engine that has it; None: none has it.
    `prompt`, `output`: tokens in engines that had it and gave no answer. `streamed`: its tokens are seen as they come.
    """

    books: Books
    call: C
    timer: RequestTimer
    reserved: ReservedCall
    streamed: bool
    sent_at: float | None = None
    prompt: int = 0
    output: int = 0
    settled: bool = False

    def sent(self) -> None:
        """It is being written to an engine."""
        self.sent_at = clock.monotonic()

    def failed(self, outcome: Outcome) -> None:
        """It ended there before its answer began."""
        if _ran(outcome):
            self._lose()
        self.sent_at = None

    def settle(self, usage: Usage | None) -> None:
        """Its answer has ended. Without a usage the prompt is estimated, and it counts as failed."""
        self.settled = True
        if usage is None:
            self._book(UsageCounts(1, 0, self.call.prompt_tokens, 0, self.timer.output_tokens))
            return
        if self.sent_at is not None and usage.completion_tokens:
            self.books.paces.note(self.call.model.served, usage.completion_tokens, clock.monotonic() - self.sent_at)
        counts = UsageCounts(1, 1, usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
        self._book(counts, duration_ms=self.timer.elapsed_ms)
        if self.call.line is not None and self.call.session is not None:
            session = sessions.hashed(self.books.secret, self.call.tenant_id, self.call.session)
            fresh = usage.prompt_tokens - usage.cached_tokens
            self.books.usage.add_turn(self.call.line, session, usage.prompt_tokens, fresh)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """It is over, for whatever reason: its caller may have left while an engine had it."""
        if not self.settled:
            self._lose()
            if self.prompt:
                self._book(UsageCounts(1))

    def _lose(self) -> None:
        """An engine has worked on it for nothing: on its prompt, and as long as nobody saw its tokens, at its model's pace."""
        if self.sent_at is None:
            return
        self.prompt += self.call.prompt_tokens
        if not self.streamed:
            since = clock.monotonic() - self.sent_at
            self.output += min(self.call.answer_tokens, self.books.paces.tokens(self.call.model.served, since))

    def _book(self, counts: UsageCounts, duration_ms: float | None = None) -> None:
        counts.prompt += self.prompt
        counts.output += self.output
        if self.call.line is not None:
            first = self.timer.first_token_ms
            self.books.usage.add(self.call.line, counts, first_token_ms=first, duration_ms=duration_ms)
            self.reserved.settle(counts.prompt, counts.cached, counts.output)


def _ran(outcome: Outcome) -> bool:
    """Whether an engine has worked on a request that ended so. One that could not be reached, or refused it, has not."""
    match outcome:
        case EngineDown():
            return outcome.suspect
        case Retry():
            return not outcome.busy and outcome.status is None
        case Doubt():
            return outcome.status == 200
    return False


class SentBody(payload.BytesPayload):
    """A body that tells when it is written to a connection."""

    def __init__(self, body: bytes, on_write: Callable[[], None]) -> None:
        super().__init__(body, content_type="application/json")
        self._on_write = on_write

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write it."""
        self._on_write()
        await super().write_with_length(writer, content_length)
