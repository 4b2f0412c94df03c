"""How many batch requests a worker may hold in flight now. Pure: time and telemetry are arguments.

The law, first match wins; whatever is unknown counts as full.

    no readable telemetry                                       closed_unknown       0
    the last sample is older than `stale_seconds`               closed_stale         0
    synchronous requests wait in the engine                     closed_sync_waiting  0
    KV-cache usage reaches `kv_ceiling`                         closed_kv            0
    running + waiting + reserve reaches the engine's slots      closed_slots         own, less what is overdrawn
    otherwise                                                   open                 min(cap, own + free slots)

An engine without requests is idle, not stale: age counts from the scrape. An allowance below what is in flight stops
admission; it does not abort.
"""

from dataclasses import dataclass
from enum import StrEnum

from app.headroom.metrics import EngineGauges


class Reason(StrEnum):
    """Why the allowance is what it is."""

    OPEN = "open"
    CLOSED_UNKNOWN = "closed_unknown"
    CLOSED_STALE = "closed_stale"
    CLOSED_SYNC_WAITING = "closed_sync_waiting"
    CLOSED_KV = "closed_kv"
    CLOSED_SLOTS = "closed_slots"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the law may not exceed. `slots`: requests the engine runs at once; `cap`: batch requests in flight."""

    cap: int
    slots: int
    reserve: int
    kv_ceiling: float
    stale_seconds: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the engine: its gauges (None: unreadable), the monotonic second, and our own requests in it."""

    gauges: EngineGauges | None
    sampled_at: float
    own: int


@dataclass(frozen=True, slots=True)
class State:
    """What the law remembers: the reason that holds and since which monotonic second."""

    reason: Reason = Reason.CLOSED_UNKNOWN
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """The allowance, why, and the comparison that decided it: `signal` was `value` against `threshold`."""

    allowance: int
    reason: Reason
    signal: str
    value: float
    threshold: float


def decide(state: State, sample: Sample | None, limits: Limits, now: float) -> tuple[State, Decision]:
    """One tick of the controller. `now` and `sample.sampled_at` are seconds of the same monotonic clock."""
    decision = _law(sample, limits, now)
    if decision.reason is not state.reason:
        state = State(decision.reason, now)
    return state, decision


def _law(sample: Sample | None, limits: Limits, now: float) -> Decision:
    if sample is None or sample.gauges is None:
        return Decision(0, Reason.CLOSED_UNKNOWN, "telemetry", 0, 1)
    age = now - sample.sampled_at
    if not 0 <= age <= limits.stale_seconds:
        return Decision(0, Reason.CLOSED_STALE, "age_seconds", age, limits.stale_seconds)
    gauges = sample.gauges
    load = gauges.running + gauges.waiting
    sync_waiting = min(gauges.waiting, max(0, load - sample.own))
    if sync_waiting > 0:
        return Decision(0, Reason.CLOSED_SYNC_WAITING, "sync_waiting", sync_waiting, 1)
    if not gauges.kv_usage < limits.kv_ceiling:
        return Decision(0, Reason.CLOSED_KV, "kv_usage", gauges.kv_usage, limits.kv_ceiling)
    usable = limits.slots - limits.reserve
    allowance = max(0, min(limits.cap, sample.own + usable - load))
    reason = Reason.OPEN if load < usable else Reason.CLOSED_SLOTS
    return Decision(allowance, reason, "load", load, usable)
