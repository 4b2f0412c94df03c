"""Estimates when a batch will be done. Pure.

    eta = seconds until an engine is ready
        + (tokens of its account that come first + its own + tokens that others receive meanwhile) / the pool's pace

The fair order gives every account with work the same tokens for the same weight, so the others receive meanwhile what their
weights allow, and at most what they have. All tokens are estimates, as in the fair order, so that a constant error cancels out.
The pace covers only time in which the pool had work and a ready engine. It includes time in which the gate was closed, because
the gate will close again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from app.engines.told_state import told_code
from app.queue.pace import STRETCH
from app.states import BatchState, EngineState

SPREADS = {"high": 0.2, "medium": 0.5}  # the largest usual error of an ETA at each confidence; above that it is low
LEAST_SECONDS = 3.0  # to claim one short item, answer it and count it; no forecast is shorter
_END_SECONDS = 0.5  # every end is uncertain by this much: the last answers, and the steward's round that counts them

Other = tuple[float, float]  # another account's weight, and its tokens that wait or run


class Confidence(StrEnum):
    """How reliable an ETA is, by the error of forecasts in the last minutes. `none`: there is no ETA."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    NONE = "none"


class Missing(StrEnum):
    """Why there is no ETA: the batch does not run, no engine is there or expected, no pace was measured lately, no item has ended
    lately, or it needs more money than this window of its budget has.
    """

    STATE = "state"
    ENGINE = "engine"
    PACE = "pace"
    STILL = "still"
    MONEY = "money"


@dataclass(frozen=True, slots=True)
class Gate:
    """An engine of the batch's model, as its worker last reported it. `allowance`: how many batch requests it may hold.

    `since`: the time of its present state and reason. `signal` had `value`, compared with `threshold`. `detail`: a problem with
    its telemetry. `expected_seconds`: until the engine should answer; None: it answers, or the time is unknown. `drained`: its
    operator has stopped its intake. `usual_seconds`: how long its last start took, or its last return.
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
    mode: str = "attached"
    usual_seconds: float | None = None

    @property
    def ready(self) -> bool:
        """Whether the engine can be sent requests."""
        return self.alive and self.state == EngineState.READY

    @property
    def open(self) -> bool:
        """Whether the engine takes batch work."""
        return self.ready and self.allowance > 0

    @property
    def code(self) -> str:
        """The reason code, or one made from the state."""
        return told_code(self.state, self.mode, self.reason, reported=self.alive)


@dataclass(frozen=True, slots=True)
class Outlook:
    """The facts at the moment `now` from which a batch's estimate is made.

    `ready`, `leased`, `delayed`, `held`, `unreserved`: its chunks by state; `taken_back`: of the unreserved ones, those that
    were ready before. `pause`: seconds until a delayed chunk is due.
    `own_tokens`: of the batch. `ahead_*`: of its account, and first in order; the batches
    among them with a chunk that is leased or ready. `weight`: of its account. `others`: other
    accounts with work. `pace`: of the pool, in estimated tokens per second; `spread`: a share of it. `pool_inflight`,
    `inflight`, `limit`: tokens in flight in the pool, of the account, and the account's limit. `suspects`: chunks with a
    worker of the pool that run alone, because an engine or a worker died with them. `spent`: nothing is left of a budget of the
    unreserved chunks. `turns`: of the unreserved ones, those that wait only for their turn or for an engine.
    `delayed_items`, `money_items`, `taken_back_items`: the items without a result of the delayed chunks, of the unreserved ones
    that wait for their budgets (of all, if none does), and of those that were taken back. `still`: for how many seconds no item
    of the pool has ended, if its pace is 0.
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
    unreserved: int = 0
    ahead_batches: int = 0
    taken_back: int = 0
    suspects: int = 0
    spent: bool = False
    turns: int = 0
    delayed_items: int = 0
    money_items: int = 0
    taken_back_items: int = 0
    still: float | None = None

    @property
    def chunks(self) -> int:
        """The unfinished chunks."""
        return self.ready + self.leased + self.delayed + self.held + self.unreserved

    @property
    def served(self) -> bool:
        """Whether an engine takes its work."""
        return any(gate.ready and not gate.drained for gate in self.gates)

    @property
    def waits_for_money(self) -> bool:
        """Whether unreserved chunks wait for their budgets, and not only for their turn or for an engine."""
        return self.unreserved > self.turns

    @property
    def in_order(self) -> int:
        """The chunks that a worker takes when it is their turn."""
        return self.ready + self.turns

    @property
    def accounts(self) -> int:
        """The accounts with work in the pool, its own included."""
        return 1 + len(self.others)

    @property
    def share(self) -> float:
        """The share of the pool that its account has now."""
        return share(self.weight, self.others)


@dataclass(frozen=True, slots=True)
class Estimate:
    """`position`: chunks of the same account that come first. `missing`: why there is no ETA; None: there is one. `still`: of its
    outlook.
    """

    position: int
    share: float
    tokens_per_second: float | None
    eta_seconds: float | None
    confidence: Confidence
    missing: Missing | None = None
    still: float | None = None


def estimate(state: BatchState, outlook: Outlook) -> Estimate:
    """The estimate for an unfinished batch."""
    eta = _eta(state, outlook)
    missing = eta if isinstance(eta, Missing) else None
    seconds = None if isinstance(eta, Missing) else eta
    confidence = _confidence(outlook, seconds) if seconds is not None else Confidence.NONE
    pace = None if outlook.pace is None else outlook.pace * outlook.share
    return Estimate(outlook.ahead_chunks, outlook.share, pace, seconds, confidence, missing, outlook.still)


def share(weight: float, others: Sequence[Other]) -> float:
    """The share of the pool that an account of this weight has while the others have work."""
    return weight / (weight + sum(other for other, _ in others))


def until_served(tokens: float, weight: float, others: Sequence[Other], pace: float) -> float:
    """Seconds until an account has received so many tokens, while it shares the pool's pace with the others."""
    meanwhile = sum(min(waiting, other * tokens / weight) for other, waiting in others)
    return max(LEAST_SECONDS, (tokens + meanwhile) / pace)


def no_pace(pace: float | None) -> Missing:
    """What a pace of 0, or none, means."""
    return Missing.PACE if pace is None else Missing.STILL


def until_engine(gates: Sequence[Gate]) -> float | None:
    """Seconds until an engine is ready that is not drained. None: there is none, and the time is unknown."""
    alive = [gate for gate in gates if gate.alive and not gate.drained]
    if any(gate.ready for gate in alive):
        return 0.0
    return min((gate.expected_seconds for gate in alive if gate.expected_seconds is not None), default=None)


def _eta(state: BatchState, outlook: Outlook) -> float | Missing:
    wait = until_engine(outlook.gates)
    if state != BatchState.OPEN:
        return Missing.STATE
    if wait is None:
        return Missing.ENGINE
    if not outlook.pace:
        return no_pace(outlook.pace)
    tokens = outlook.ahead_tokens + outlook.own_tokens
    return max(wait + until_served(tokens, outlook.weight, outlook.others, outlook.pace), outlook.pause or 0.0)


def _confidence(outlook: Outlook, eta: float) -> Confidence:
    """The spread holds for STRETCH seconds. A shorter forecast has a larger error, mostly from its end."""
    if outlook.spread is None or not any(gate.open for gate in outlook.gates):
        return Confidence.LOW
    spread = outlook.spread * math.sqrt(max(1.0, STRETCH / max(eta, 1.0))) + _END_SECONDS / max(eta, _END_SECONDS)
    return next((Confidence(level) for level, most in SPREADS.items() if spread <= most), Confidence.LOW)
