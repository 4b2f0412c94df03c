"""When a batch will be done. Pure.

    eta = until an engine is there
        + (tokens of its account that come first + its own + what others get meanwhile) / the pool's pace

Others get meanwhile what they have, and no more than their weights allow: the fair order gives every account that has work
the same tokens for the same weight. All tokens are estimated ones, as in the queue's accounts, so that a habit of
over-estimating cancels out. The pace counts only time in which the pool had work and an engine; the gate's closed hours are in
it, since more of them will come.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from app.queue.pace import STRETCH
from app.states import BatchState, EngineState

SPREADS = {"high": 0.2, "medium": 0.5}  # by which an ETA usually misses at most; more is low
_END_SECONDS = (
    0.5  # by which the end of a batch is uncertain at any pace: its last answers, and the round that counts them
)

Other = tuple[float, float]  # an account's weight, and its tokens that wait or run


class Confidence(StrEnum):
    """How much an ETA is worth, by how far those of the last minutes missed. `none`: there is no ETA."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Gate:
    """An engine of the batch's model as its worker last reported it; `allowance` is how many batch requests it may hold.

    Since `since` it has its state and its reason: `signal` was `value` against `threshold`, and `detail` is wrong with its
    telemetry. In `expected_seconds` it should answer; None: it does, or nobody knows. A `drained` one was told by its operator
    to take nothing more.
    """

    engine_id: int
    engine: str
    state: EngineState
    allowance: int
    reason: str | None
    signal: str | None
    value: float | None
    threshold: float | None
    since: datetime
    heartbeat_at: datetime
    alive: bool
    detail: str | None = None
    expected_seconds: float | None = None
    drained: bool = False

    @property
    def ready(self) -> bool:
        """Whether requests can be sent to it."""
        return self.alive and self.state == EngineState.READY

    @property
    def open(self) -> bool:
        """Whether it takes batch work."""
        return self.ready and self.allowance > 0

    @property
    def code(self) -> str:
        """The reason, or what the state alone says."""
        return self.reason or f"engine_{self.state}"


@dataclass(frozen=True, slots=True)
class Outlook:
    """Where the unfinished chunks of a batch stand at the moment `now`, and what is before and beside them.

    Chunks by state, seconds until a delayed one is due, the batch's own tokens and those of its account that come first; the
    account's weight, and the `others` that have work; the pool's pace in estimated tokens per second and its spread, a share of
    it; tokens in flight of all accounts, of its own, and its own limit.
    """

    gates: tuple[Gate, ...]
    now: datetime
    ready: int
    leased: int
    delayed: int
    held: int
    pause: float | None
    own_tokens: float
    ahead_chunks: int
    ahead_tokens: float
    weight: float
    others: tuple[Other, ...]
    pace: float | None
    spread: float | None
    pool_inflight: int
    inflight: int
    limit: int

    @property
    def chunks(self) -> int:
        """Those that are not finished."""
        return self.ready + self.leased + self.delayed + self.held

    @property
    def accounts(self) -> int:
        """Those that have work in the pool, its own included."""
        return 1 + len(self.others)

    @property
    def share(self) -> float:
        """Of the pool, that its account has now."""
        return share(self.weight, self.others)


@dataclass(frozen=True, slots=True)
class Estimate:
    """`position`: chunks of the same tenant that come first."""

    position: int
    share: float
    tokens_per_second: float | None
    eta_seconds: float | None
    confidence: Confidence


def estimate(state: BatchState, outlook: Outlook) -> Estimate:
    """The estimate for an unfinished batch."""
    eta = _eta(state, outlook)
    confidence = _confidence(outlook, eta) if eta is not None else Confidence.NONE
    pace = None if outlook.pace is None else outlook.pace * outlook.share
    return Estimate(outlook.ahead_chunks, outlook.share, pace, eta, confidence)


def share(weight: float, others: Sequence[Other]) -> float:
    """What an account of this weight has of the pool, while the others have work."""
    return weight / (weight + sum(other for other, _ in others))


def until_served(tokens: float, weight: float, others: Sequence[Other], pace: float) -> float:
    """Seconds until an account has been served so many tokens, at the pool's pace, which it shares with the others."""
    meanwhile = sum(min(waiting, other * tokens / weight) for other, waiting in others)
    return (tokens + meanwhile) / pace


def until_engine(gates: Sequence[Gate]) -> float | None:
    """Seconds until an engine is there that was not drained; None: none is, and nobody knows when."""
    alive = [gate for gate in gates if gate.alive and not gate.drained]
    if any(gate.ready for gate in alive):
        return 0.0
    return min((gate.expected_seconds for gate in alive if gate.expected_seconds is not None), default=None)


def _eta(state: BatchState, outlook: Outlook) -> float | None:
    away = until_engine(outlook.gates)
    if state != BatchState.OPEN or not outlook.pace or away is None:
        return None
    tokens = outlook.ahead_tokens + outlook.own_tokens
    return max(away + until_served(tokens, outlook.weight, outlook.others, outlook.pace), outlook.pause or 0.0)


def _confidence(outlook: Outlook, eta: float) -> Confidence:
    """By the spread, which is that of a stretch of time: a shorter one is missed by more, and a short one by its end alone."""
    if outlook.spread is None or not any(gate.open for gate in outlook.gates):
        return Confidence.LOW
    spread = outlook.spread * math.sqrt(max(1.0, STRETCH / max(eta, 1.0))) + _END_SECONDS / max(eta, _END_SECONDS)
    return next((Confidence(level) for level, most in SPREADS.items() if spread <= most), Confidence.LOW)
