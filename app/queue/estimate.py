"""When a batch will be done. Pure.

    eta = (tokens of its tenant that come first + tokens of its own) / (the pool's pace x its tenant's share)

All tokens are estimated ones, as in the queue's accounts, so that a habit of over-estimating cancels out. The pace counts
only time in which the pool had work; the gate's closed hours are in it, since more of them will come.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from app.states import BatchState, EngineState

MEASURED_INTERVALS = {"high": 12, "medium": 3}  # of ten seconds each, less is low


class Confidence(StrEnum):
    """How much an ETA is worth. `none`: there is no ETA."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Gate:
    """An engine of the batch's model as its worker last reported it; `allowance` is how many batch requests it may hold.

    Since `since` it has its state and its reason: `signal` was `value` against `threshold`.
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
    account's share; the pool's pace in estimated tokens per second over `intervals` measured ones of ten seconds; how many
    `accounts` have work in the pool; tokens in flight of all of them, of its own, and its own limit.
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
    share: float
    pace: float | None
    intervals: int
    accounts: int
    pool_inflight: int
    inflight: int
    limit: int

    @property
    def chunks(self) -> int:
        """Those that are not finished."""
        return self.ready + self.leased + self.delayed + self.held


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
    confidence = _confidence(outlook) if eta is not None else Confidence.NONE
    pace = None if outlook.pace is None else outlook.pace * outlook.share
    return Estimate(outlook.ahead_chunks, outlook.share, pace, eta, confidence)


def _eta(state: BatchState, outlook: Outlook) -> float | None:
    if state != BatchState.OPEN or not outlook.pace or not outlook.share:
        return None
    return (outlook.ahead_tokens + outlook.own_tokens) / (outlook.pace * outlook.share)


def _confidence(outlook: Outlook) -> Confidence:
    if not any(gate.open for gate in outlook.gates):
        return Confidence.LOW
    for level, intervals in MEASURED_INTERVALS.items():
        if outlook.intervals >= intervals:
            return Confidence(level)
    return Confidence.LOW
