"""The history of a run: batches as their clients know them, requests at engines, faults and violations."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field

KINDS = ("plain", "slow", "flaky", "refuse")  # how the engine treats an item; the prompt contains the word
MUST_BE_ZERO = (
    "lost",
    "duplicated",
    "rerun_after_flush",
    "ran_when_halted",
    "ran_without_lease",
    "wrongly_ordered",
    "unaccounted",
    "overspent",
    "wrong_kind",
    "went_back",
    "misanswered",
    "failed_submits",  # counted where no fault explains one: test_next_version.py
    "webhooks_missing",
    "told_after_deletion",
    "innocent_given_up",
    "kill_lost",
    "kill_doubled",
    "kill_wrong_lineage",
    "unexpected_exits",
    "unexpected_exceptions",
    "broken_runs",
)


SERVED, UNSERVED = "smollm2-135m-instruct", "unserved"  # a model that the engines serve, and one that none has


@dataclass(slots=True)
class Halt:
    """The time from the response to a pause or cancel until a resume or retry may have taken effect."""

    verb: str
    began: float
    ended: float = float("inf")


@dataclass(eq=False)
class Batch:
    """One submit: its items, the responses that its client got, and the operations that it sent."""

    key: str
    tenant: str
    prompts: list[str]
    form: str
    window: int | None = None  # seconds until it expires
    labels: dict[str, str] = field(default_factory=dict)  # headers
    model: str = SERVED
    request_ids: set[str] = field(default_factory=set)
    accepted_at: float = float("inf")
    done: int = 0  # the most that a poll has reported
    final: str | None = None  # digest of the final answer
    settled: asyncio.Lock = field(default_factory=asyncio.Lock)  # a retry and a poll exclude each other
    retries: list[float] = field(default_factory=list)
    halts: list[Halt] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)  # verbs that were sent, with or without a response
    late_retry: bool = False  # a retry without a response may still take effect
    must_be_cancelled: bool = False
    _moves: Counter[str] = field(default_factory=Counter)
    _moving: Counter[str] = field(default_factory=Counter)

    @property
    def unserved(self) -> bool:
        """Whether its model has no engine, so that it waits until it is cancelled."""
        return self.model == UNSERVED

    @property
    def accepted(self) -> bool:
        """Whether the server has accepted it."""
        return bool(self.request_ids)

    @property
    def request_id(self) -> str:
        """The id under which it was accepted."""
        return next(iter(self.request_ids))

    def accept(self, request_id: str) -> None:
        """Record that the server has accepted the batch."""
        self.request_ids.add(request_id)
        self.accepted_at = min(self.accepted_at, time.time())

    @property
    def expires_at(self) -> float:
        """The time at which its deadline has passed for certain."""
        return self.accepted_at + self.window if self.window else float("inf")

    def refused(self, seq: int) -> bool:
        """Whether the engine refuses this item, so that it must end as failed."""
        return "refuse" in self.prompts[seq]

    def begin(self, verb: str) -> None:
        """Record that a resume or retry is sent. It ends the halts that it may undo."""
        self._moves[verb] += 1
        self._moving[verb] += 1
        for halt in self.halts:
            if verb == "retry" or halt.verb == "pause":
                halt.ended = min(halt.ended, time.time())

    def end(self, verb: str) -> None:
        """Record that it got a response."""
        self._moves[verb] += 1
        self._moving[verb] -= 1

    def moves_against(self, verb: str) -> tuple[int, bool]:
        """How many operations may have undone a pause or cancel, and whether one is in flight."""
        undo = ("resume", "retry") if verb == "pause" else ("retry",)
        return sum(self._moves[name] for name in undo), any(self._moving[name] for name in undo)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request at an engine. `sent`: when process `sender` started to send it. Both times are wall-clock times."""

    at: float
    sent: float
    sender: int
    engine: str
    prompt: str


@dataclass(slots=True)
class Stop:
    """The time from a SIGSTOP of a process to its SIGCONT. `split`: a request was seen that it caught after its permission."""

    pid: int
    began: float
    ended: float = float("inf")
    split: bool = False


@dataclass(slots=True)
class Cut:
    """The time in which nothing passed between an engine and its worker. What was on the way came later, if at all."""

    engine: str
    began: float
    ended: float = float("inf")

    def held(self, arrival: Arrival) -> bool:
        """Whether it held a request back: TCP sends again at most twice as long after the first try as it did in vain."""
        vain = self.ended - max(self.began, arrival.sent)
        return vain > 0 and arrival.engine == self.engine and self.ended <= arrival.at <= self.ended + vain + 1


class History:
    """Everything that the verdict uses. Load, nemesis and engines write it in one event loop."""

    def __init__(self) -> None:
        self.began = time.time()
        self.batches: list[Batch] = []
        self.arrivals: list[Arrival] = []
        self.contexts: list[tuple[str, ...]] = []  # texts of the requests for responses at engines
        self.calls: set[str] = set()  # prompts of synchronous requests
        self.stops: list[Stop] = []
        self.cuts: list[Cut] = []
        self.webhooks: list[tuple[str, str, str]] = []  # (webhook-id, event type, request id)
        self.doomed: list[tuple[str, float]] = []  # (endpoint, time of an event) for endpoints that will be deleted
        self.deleted: dict[str, float] = {}  # endpoint → time of the response to its deletion
        self.operations: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.counts: Counter[str] = Counter(dict.fromkeys(MUST_BE_ZERO, 0))
        self.details: list[str] = []
        self.log: list[tuple[float, str]] = []

    def wrong(self, what: str, detail: str, n: int = 1) -> None:
        """Count a violation. The details of the first few are kept."""
        self.counts[what] += n
        if self.counts[what] <= 5 * n:
            self.details.append(f"{time.time() - self.began:7.2f} {what}: {detail}")

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault and record its time."""
        self.faults[kind] += 1
        self.log_line(f"{kind} {detail}".strip())

    def log_line(self, text: str) -> None:
        """Add a line to the log of the run."""
        self.log.append((time.time() - self.began, text))

    def around(self, moment: float, seconds: float = 6.0) -> str:
        """The lines of the log around a wall-clock time, to explain a violation."""
        at = moment - self.began
        return "; ".join(f"{t:.2f} {text}" for t, text in self.log if at - seconds <= t <= at + 0.2)

    def sent_before_deletion(self, endpoint: str) -> int:
        """How many events were sent to an endpoint that will be deleted."""
        return sum(name == endpoint for name, _ in self.doomed)

    @property
    def accepted(self) -> list[Batch]:
        """The batches that the server has accepted."""
        return [batch for batch in self.batches if batch.accepted]

    @property
    def items(self) -> int:
        """The number of items in accepted batches."""
        return sum(len(batch.prompts) for batch in self.accepted)

    @property
    def open_items(self) -> int:
        """The number of items without a result, as far as the clients know."""
        return sum(len(batch.prompts) - batch.done for batch in self.accepted if batch.final is None)

    @property
    def sound(self) -> bool:
        """Whether there is no violation."""
        return not any(self.counts[name] for name in MUST_BE_ZERO)
