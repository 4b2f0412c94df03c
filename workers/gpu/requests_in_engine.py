"""Our own requests in the engine and their progress. They are subtracted from scrapes, and some of them yield."""

import asyncio
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from app import clock
from app.engines.continuation import Continuation
from app.headroom.signals import BatchLoad
from app.headroom.stream_pace import StreamState
from app.queue.bodies import BatchSeal
from app.queue.types import Item
from workers.gpu.stream_log import StreamLogWriter

PREFILL_SECONDS = 1.0  # a request that is not streamed counts as prefilling for this long
MOST_YIELDS = 3  # a request that has yielded this often runs to its end

Task = asyncio.Task[None]


@dataclass
class TokenCount:
    """Counts the events of an answer that is streamed only so that its pace is seen."""

    received: int = 0

    def add(self, event: bytes) -> None:
        """Count one event."""
        self.received += 1


@dataclass
class ItemProgress:
    """An item and what it keeps between its calls: how often it yielded, and its output so far if it can go on from it.

    `log`: the log of its events, if a caller may follow them. `count`: the events of its present call, if they are counted.
    `engine_seconds`: its share of the engine's time. `sent_at`, `first_token_at`: monotonic seconds; None: not yet, or not known.
    `loaded_at`: when the item was read from the queue.
    `traceparent`: what goes with its requests; None: while no spans are recorded, the submit's.
    `seal`: of its batch, if that is sealed.
    """

    item: Item
    yields: int = 0
    transcript: Continuation | None = None
    log: StreamLogWriter | None = None
    count: TokenCount | None = None
    engine_seconds: float = 0.0
    sent_at: float | None = None
    first_token_at: float | None = None
    loaded_at: float = field(default_factory=clock.monotonic)
    traceparent: str | None = None
    seal: BatchSeal | None = None

    def note_sent(self) -> None:
        """Its first call begins."""
        if self.sent_at is None:
            self.sent_at = clock.monotonic()

    def note_token(self, then: Callable[[], None] = lambda: None) -> None:
        """The first token of a call has come. `then` is called."""
        if self.first_token_at is None:
            self.first_token_at = clock.monotonic()
        then()

    def add_event(self, event: bytes) -> None:
        """An event of an answer has come whose events are counted."""
        self.note_token()
        if self.count is not None:
            self.count.add(event)

    @property
    def generated(self) -> int:
        """Generated tokens that are lost if it does not go on."""
        if self.transcript is not None:
            return self.transcript.received
        return self.count.received if self.count is not None else 0

    def parked(self) -> int:
        """Note that its call has ended by a yield. Returns the generated tokens that are lost, if it cannot go on from them."""
        if self.transcript is not None and self.transcript.started:
            return 0
        lost, self.count = self.generated, None
        if self.transcript is not None:
            self.transcript.received = 0
        return lost


@dataclass(eq=False)
class SentRequest:
    """A request that was sent. `estimate`: tokens of its prompt, until the engine reports them. `yields`: so far."""

    estimate: int
    transcript: Continuation | None
    yields: int = 0
    since: float = field(default_factory=clock.monotonic)
    known_before: int = 0
    count: TokenCount | None = None
    shared_before: float = 0.0
    _received_before: int = 0

    def __post_init__(self) -> None:
        if self.transcript is not None and self.transcript.started:
            self._received_before = self.transcript.received
            self.known_before = self.estimate = self.transcript.context_tokens

    @property
    def goes_on(self) -> bool:
        """Whether it can go on from its tokens after a yield, as far as its answer has shown."""
        return self.transcript is not None and not self.transcript.beyond

    @property
    def received(self) -> int | None:
        """Tokens of this call so far; None if it is not a stream."""
        if self.transcript is not None:
            return self.transcript.received - self._received_before
        return self.count.received if self.count is not None else None

    @property
    def prefilling(self) -> bool:
        """Whether its prompt is probably not computed yet."""
        if self.received is None:
            return clock.monotonic() - self.since < PREFILL_SECONDS
        return not self.received

    @property
    def context_tokens(self) -> int:
        """Tokens that it has in the KV cache after its prefill."""
        if self.transcript is None or not self.transcript.prompt_ids:
            return self.estimate + (self.received or 0)
        return max(self.estimate, self.transcript.context_tokens)

    @property
    def computed_tokens(self) -> int:
        """Tokens that the engine computed for this call, its prompt included."""
        return self.transcript.context_tokens - self.known_before if self.transcript else 0


class RequestsInEngine:
    """The calls of one worker that are in the engine.

    The time in which there are any is shared out: each call gets an equal part of every moment that it is there. So the shares
    of all calls add up to the time in which the engine had batch work. `left`: how many calls have left, for any reason.
    """

    def __init__(self) -> None:
        self.calls: dict[Task, SentRequest] = {}
        self.left = 0
        self._computed = 0
        self._shared = 0.0  # seconds that a call would have got that was always there
        self._shared_at = clock.monotonic()
        self._busy_at = -math.inf

    def enter(self, task: Task, call: SentRequest) -> None:
        """Add a request that is about to be sent."""
        call.shared_before = self._share()
        self.calls[task] = call

    def leave(self, task: Task, tokens: int = 0) -> float:
        """Remove a request. `tokens`: computed for it, if it was not streamed. Returns its share of the time, in seconds."""
        shared = self._share()
        call = self.calls.pop(task, None)
        self._busy_at = clock.monotonic()
        if call is None:
            return 0.0
        self.left += 1
        self._computed += call.computed_tokens or tokens
        return shared - call.shared_before

    def busy_since(self, second: float) -> bool:
        """Whether a call was in the engine at any moment since this second of the monotonic clock."""
        return bool(self.calls) or self._busy_at >= second

    def _share(self) -> float:
        now = clock.monotonic()
        if self.calls:
            self._shared += (now - self._shared_at) / len(self.calls)
        self._shared_at = now
        return self._shared

    def load(self) -> BatchLoad:
        """The sum of all calls."""
        calls = self.calls.values()
        return BatchLoad(
            requests=len(calls),
            prefill_tokens=sum(call.estimate for call in calls if call.prefilling),
            context_tokens=sum(call.context_tokens for call in calls),
            computed_tokens=self._computed + sum(call.computed_tokens for call in calls),
        )

    def streams(self) -> dict[Task, StreamState]:
        """The calls that are streams, and how far they are."""
        return {
            task: StreamState(call.since, received)
            for task, call in self.calls.items()
            if (received := call.received) is not None
        }

    def victims(self, surplus: int, leaving: Collection[Task] = (), *, all_yield: bool = False) -> list[Task]:
        """The requests that yield first: those that can go on, with few computed tokens first; then those that started last.

        Requests that are `leaving` are not among them. Those that have yielded too often, or that somebody follows, are only
        with `all_yield`.
        """
        able = [
            (task, call)
            for task, call in self.calls.items()
            if (all_yield or call.yields < MOST_YIELDS) and task not in leaving
        ]
        able.sort(key=lambda entry: (not entry[1].goes_on, entry[1].computed_tokens, -entry[1].since))
        return [task for task, _ in able[: max(0, surplus)]]
