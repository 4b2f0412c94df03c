"""What happened: batches as their clients know them, arrivals at engines, faults, and what was found wrong."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field

KINDS = ("plain", "slow", "flaky", "refuse")  # how the engine treats an item; the word stands in its prompt
MUST_BE_ZERO = (
    "lost",
    "duplicated",
    "rerun_after_flush",
    "ran_when_halted",
    "wrongly_ordered",
    "unaccounted",
    "wrong_kind",
    "went_back",
    "misanswered",
    "webhooks_missing",
    "told_after_deletion",
    "innocent_given_up",
    "unexpected_exits",
    "unexpected_exceptions",
    "broken_runs",
)


@dataclass(slots=True)
class Halt:
    """From the answer to a pause or cancel until someone may have let the batch go on."""

    verb: str
    began: float
    ended: float = float("inf")


@dataclass(eq=False)
class Batch:
    """One submit: what was sent, what its client was told since, and what was asked for."""

    key: str
    tenant: str
    prompts: list[str]
    form: str
    window: int | None = None  # seconds until it expires
    request_ids: set[str] = field(default_factory=set)
    accepted_at: float = float("inf")
    done: int = 0  # the most that a poll has reported
    final: str | None = None  # digest of the final answer
    settled: asyncio.Lock = field(default_factory=asyncio.Lock)  # held by a retry, and by who polls
    retries: list[float] = field(default_factory=list)
    halts: list[Halt] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)  # verbs, answered or not
    late_retry: bool = False  # one without an answer may still be on its way
    must_be_cancelled: bool = False
    _moves: Counter[str] = field(default_factory=Counter)
    _moving: Counter[str] = field(default_factory=Counter)

    @property
    def accepted(self) -> bool:
        """Whether the server has said so."""
        return bool(self.request_ids)

    @property
    def request_id(self) -> str:
        """The id under which it was accepted."""
        return next(iter(self.request_ids))

    def accept(self, request_id: str) -> None:
        """The server says that it has the batch."""
        self.request_ids.add(request_id)
        self.accepted_at = min(self.accepted_at, time.time())

    @property
    def expires_at(self) -> float:
        """When its deadline has certainly passed."""
        return self.accepted_at + self.window if self.window else float("inf")

    def refused(self, seq: int) -> bool:
        """Whether the engine refuses this item, so that it must end as failed."""
        return "refuse" in self.prompts[seq]

    def begin(self, verb: str) -> None:
        """A resume or retry is on its way: halts that it may end are over."""
        self._moves[verb] += 1
        self._moving[verb] += 1
        for halt in self.halts:
            if verb == "retry" or halt.verb == "pause":
                halt.ended = min(halt.ended, time.time())

    def end(self, verb: str) -> None:
        """It was answered."""
        self._moves[verb] += 1
        self._moving[verb] -= 1

    def moves_against(self, verb: str) -> tuple[int, bool]:
        """How much has happened so far that may undo a pause or cancel, and whether something is on its way."""
        undo = ("resume", "retry") if verb == "pause" else ("retry",)
        return sum(self._moves[name] for name in undo), any(self._moving[name] for name in undo)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request at an engine. `sent` is when its worker, process `sender`, began to send it; wall times."""

    at: float
    sent: float
    sender: int
    engine: str
    prompt: str


@dataclass(slots=True)
class Stop:
    """A SIGSTOP of a process until its SIGCONT."""

    pid: int
    began: float
    ended: float = float("inf")


class History:
    """Everything that the verdict is made of. Written by load, nemesis and engines in one event loop."""

    def __init__(self) -> None:
        self.began = time.time()
        self.batches: list[Batch] = []
        self.arrivals: list[Arrival] = []
        self.stops: list[Stop] = []
        self.webhooks: list[tuple[str, str, str]] = []  # (webhook-id, event type, request id)
        self.doomed: list[tuple[str, float]] = []  # (endpoint, when it was sent something), of those that are deleted
        self.deleted: dict[str, float] = {}  # endpoint → when its deletion had been answered
        self.operations: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.counts: Counter[str] = Counter(dict.fromkeys(MUST_BE_ZERO, 0))
        self.details: list[str] = []
        self.log: list[tuple[float, str]] = []

    def wrong(self, what: str, detail: str, n: int = 1) -> None:
        """Count a violation; the first few are kept in words."""
        self.counts[what] += n
        if self.counts[what] <= 5 * n:
            self.details.append(f"{time.time() - self.began:7.2f} {what}: {detail}")

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault and remember when it was."""
        self.faults[kind] += 1
        self.say(f"{kind} {detail}".strip())

    def say(self, text: str) -> None:
        """A line of the chronicle."""
        self.log.append((time.time() - self.began, text))

    def around(self, moment: float, seconds: float = 6.0) -> str:
        """The chronicle before a wall time, for the explanation of a violation."""
        at = moment - self.began
        return "; ".join(f"{t:.2f} {text}" for t, text in self.log if at - seconds <= t <= at + 0.2)

    def told_before_deletion(self, endpoint: str) -> int:
        """How often an endpoint that is to be deleted was sent something."""
        return sum(name == endpoint for name, _ in self.doomed)

    @property
    def accepted(self) -> list[Batch]:
        """Batches that the server has accepted."""
        return [batch for batch in self.batches if batch.accepted]

    @property
    def items(self) -> int:
        """Items of the batches that the server has accepted."""
        return sum(len(batch.prompts) for batch in self.accepted)

    @property
    def open_items(self) -> int:
        """Items that, as far as clients know, have no result yet."""
        return sum(len(batch.prompts) - batch.done for batch in self.accepted if batch.final is None)

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not any(self.counts[name] for name in MUST_BE_ZERO)
