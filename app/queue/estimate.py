"""When a batch will be done, and what it waits for. Pure.

    eta = (tokens of its tenant that come first + tokens of its own) / (the pool's pace x its tenant's share)

All tokens are estimated ones, as in the queue's accounts, so that a habit of over-estimating cancels out. The pace counts
only time in which the pool had work; the gate's closed hours are in it, since more of them will come.
"""

from dataclasses import dataclass
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
class EngineView:
    """An engine of the pool as its worker last reported it; `allowance` is how many batch requests it may hold."""

    state: EngineState
    reason: str | None
    allowance: int
    alive: bool


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known of a batch's place. Pace in estimated tokens per second over `intervals` measured ones of ten seconds."""

    state: BatchState
    engines: tuple[EngineView, ...]
    own_tokens: float
    leased_chunks: int
    delayed_chunks: int
    ahead_chunks: int
    ahead_tokens: float
    share: float
    pace: float | None
    intervals: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """`position`: chunks of the same tenant that come first. `note` says what the batch waits for, in words."""

    position: int
    share: float
    tokens_per_second: float | None
    eta_seconds: float | None
    confidence: Confidence
    note: str


def estimate(outlook: Outlook) -> Estimate:
    """The estimate for an unfinished batch."""
    eta = _eta(outlook)
    confidence = _confidence(outlook) if eta is not None else Confidence.NONE
    pace = None if outlook.pace is None else outlook.pace * outlook.share
    return Estimate(outlook.ahead_chunks, outlook.share, pace, eta, confidence, _note(outlook))


def _eta(outlook: Outlook) -> float | None:
    if outlook.state != BatchState.OPEN or not outlook.pace or not outlook.share:
        return None
    return (outlook.ahead_tokens + outlook.own_tokens) / (outlook.pace * outlook.share)


def _confidence(outlook: Outlook) -> Confidence:
    if not any(_open(engine) for engine in outlook.engines):
        return Confidence.LOW
    for level, intervals in MEASURED_INTERVALS.items():
        if outlook.intervals >= intervals:
            return Confidence(level)
    return Confidence.LOW


def _open(engine: EngineView) -> bool:
    return engine.alive and engine.state == EngineState.READY and engine.allowance > 0


def _note(outlook: Outlook) -> str:
    alive = [engine for engine in outlook.engines if engine.alive]
    ready = any(engine.state == EngineState.READY for engine in alive)
    first_that_holds = (
        (outlook.state == BatchState.PAUSED, "paused; resume it to go on"),
        (outlook.state != BatchState.OPEN, "ending; items in an engine come to their end"),
        (not alive, "no engine serves this model now; the batch is kept until one does"),
        (not ready, f"the engine is not ready: {_reasons(alive)}"),
        (
            not any(_open(engine) for engine in alive),
            f"the engine has no room beside synchronous traffic: {_reasons(alive)}",
        ),
        (outlook.leased_chunks > 0, "running"),
        (outlook.ahead_chunks > 0, "waiting for its turn behind earlier work of this account"),
        (outlook.delayed_chunks > 0, "some items rest before they are tried again"),
        (True, "next in line"),
    )
    return next(note for holds, note in first_that_holds if holds)


def _reasons(engines: list[EngineView]) -> str:
    return ", ".join(sorted({engine.reason or str(engine.state) for engine in engines}))
