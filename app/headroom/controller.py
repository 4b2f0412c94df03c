"""How many batch requests a worker may hold in an engine now (L1). Pure: time and telemetry are arguments.

One tick each tenth of a second, and at once when a synchronous request is announced. The first line that matches decides;
whatever is unknown counts as full.

    no readable telemetry                                          closed_unknown       0
    the last scrape is too old, or counters stand still too long   closed_stale         0; in the end yield all
    synchronous requests have waited for 0.3 s                      closed_sync_waiting  window halved, surplus yields
    a burst of synchronous prompts was announced                   yield_burst          window halved, surplus yields
    KV-cache usage reaches `kv_ceiling`                            closed_kv            nothing new
    running + waiting + reserve reaches the engine's slots         closed_slots         own, less what is overdrawn
    steps take longer than permitted                               shrink_latency       window drains, nothing is aborted
    a yield was less than a second ago                             hold                 window stays
    otherwise                                                      ramp, open           window grows, if it is used

The window is LEDBAT's (RFC 6817) with a predicted base: `off` is the part of the permitted extra step time that is left,
where extra = measured step - predicted step of the synchronous work alone. It counts tokens of context, because a long
request burdens every step more than a short one. The step model caps it ahead of any harm: never more requests than
would stretch a step of synchronous decoding beyond what is permitted.

An engine without requests is idle, not stale: age counts from the scrape, less the time in which this process did not run. What
is too old the sampler learns, `stale_seconds` at least.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from app.headroom.signals import Scrape, Signals

STUCK_SECONDS = 0.3
CALM_SECONDS = 5.0  # so long after the last synchronous request the next one is still expected
HOLD_SECONDS = 1.0
YIELD_STALE_SECONDS = 5.0
SLOW_START = 1.15
ROOM = 0.25  # slow start ends when less than this part of the permitted extra is left
STEP_REQUESTS = 4.0  # additive growth per scrape, in requests of mean size
DRAIN = 0.9  # most that one scrape of too long steps takes from the window
TYPICAL_TOKENS = 512  # of a request, until some were seen
MEMORY = 0.9
MANY = 1 << 30  # no limit
AT_EASE, AT_RISK = 0.20, 0.05  # slack, as a share of the window, at which a deadline begins to press and presses fully


class Reason(StrEnum):
    """Why the allowance is what it is."""

    OPEN = "open"
    RAMP = "ramp"
    HOLD = "hold"
    HARVEST = "harvest"
    DEADLINE_RAMP = "deadline_ramp"
    SHRINK_LATENCY = "shrink_latency"
    YIELD_BURST = "yield_burst"
    CLOSED_SYNC_WAITING = "closed_sync_waiting"
    CLOSED_SLOTS = "closed_slots"
    CLOSED_KV = "closed_kv"
    CLOSED_STALE = "closed_stale"
    CLOSED_UNKNOWN = "closed_unknown"
    CLOSED_MODEL_ERROR = "closed_model_error"
    PLUGIN_TRIPPED = "plugin_tripped"


CLOSED_BY_FAILURE = frozenset({Reason.CLOSED_STALE, Reason.CLOSED_UNKNOWN})


Comparison = tuple[Reason, str, float, float]  # the reason, and the signal whose value was compared with a threshold


@dataclass(frozen=True, slots=True)
class HeadroomLimits:
    """What the law may not exceed. `slots`: requests the engine runs at once; `cap`: batch requests in flight.

    `itl_budget` seconds may a step take beside synchronous requests, or `itl_stretch` times what their decoding alone
    takes; up to `itl_ceiling` for a batch whose deadline is near. While there are none: `idle_cap`, or `idle_stretch` times
    the shortest step. Where synchronous work alone takes longer, `tolerance` more than that.
    `burst_tokens` of synchronous prompts without a first token are a burst; `floor` requests are left to batch work
    unless the gate is closed; `prefill_tokens` of batch prompts at most may be uncomputed. `static`: always `cap`,
    unless telemetry fails.
    """

    cap: int
    slots: int
    reserve: int
    kv_ceiling: float
    stale_seconds: float
    itl_budget: float = 0.025
    itl_stretch: float = 1.1
    itl_ceiling: float = 0.050
    idle_cap: float = 0.050
    idle_stretch: float = 1.5
    tolerance: float = 0.05
    burst_tokens: int = 3072
    prefill_tokens: int = 1024
    floor: int = 0
    static: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """What the law remembers: its reason and since which monotonic second, the window in tokens, how it is growing."""

    reason: Reason = Reason.CLOSED_UNKNOWN
    since: float = 0.0
    window: float = 4.0 * TYPICAL_TOKENS
    slow_start: bool = True
    hold_until: float = -math.inf
    waiting_since: float | None = None  # since which scrape synchronous requests wait in the engine
    sync_seen: float = -math.inf  # when a synchronous request was last known of
    mean_tokens: float = TYPICAL_TOKENS
    acted_on: float = -math.inf  # when the scrape began that moved the window last
    moved: Comparison | None = None  # what decided how it moved; holds until the next scrape


@dataclass(frozen=True, slots=True)
class Decision:
    """The allowance, why, and the comparison that decided it: `signal` was `value` against `threshold`.

    `allowance`: requests that may be in flight; `prefill_tokens`: of batch prompts that may be uncomputed (the first
    request is exempt); `surplus`: how many to yield now; `tokens`: the window.
    """

    allowance: int
    reason: Reason
    signal: str
    value: float
    threshold: float
    prefill_tokens: int = 0
    surplus: int = 0
    tokens: int = 0


def urgency(slack: float | None) -> float:
    """How hard a deadline presses, 0..1, from the share of its window that will be left: nothing above a fifth, all at 5 %."""
    return 0.0 if slack is None else max(0.0, min(1.0, (AT_EASE - slack) / (AT_EASE - AT_RISK)))


def decide(state: State, sight: Signals, limits: HeadroomLimits) -> tuple[State, Decision]:
    """One tick. All times are seconds of one monotonic clock."""
    state = _aged(state, sight)
    failure = _failure(sight, limits)
    if failure is not None:
        return _noted(replace(state, slow_start=True, window=4 * state.mean_tokens), sight, failure)
    if limits.static:
        cap = Decision(limits.cap, Reason.OPEN, "static_cap", sight.batch.requests, limits.cap, prefill_tokens=MANY)
        return _noted(state, sight, cap)
    state, decision = _law(state, sight, limits)
    return _noted(state, sight, decision)


def _noted(state: State, sight: Signals, decision: Decision) -> tuple[State, Decision]:
    if decision.reason is not state.reason:
        state = replace(state, reason=decision.reason, since=sight.now)
    return state, decision


def _aged(state: State, sight: Signals) -> State:
    """What ages whatever the law says: the mean size of a request, and when synchronous requests were seen or stuck."""
    waiting, since = _sync_waiting(sight.scrape), state.waiting_since
    if sight.scrape is not None:
        since = (sight.scrape.sampled_at if since is None else since) if waiting else None
    seen = sight.now if _sync_present(sight) else state.sync_seen
    state = replace(state, waiting_since=since, sync_seen=seen)
    if not sight.batch.requests:
        return state
    mean = sight.batch.context_tokens / sight.batch.requests
    return replace(state, mean_tokens=max(1.0, MEMORY * state.mean_tokens + (1 - MEMORY) * mean))


def _failure(sight: Signals, limits: HeadroomLimits) -> Decision | None:
    scrape = sight.scrape
    if scrape is None or scrape.gauges is None:
        surplus = sight.batch.requests if scrape is not None else 0
        return Decision(0, Reason.CLOSED_UNKNOWN, "telemetry", 0, 1, surplus=surplus)
    age, limit = sight.age(scrape.sampled_at), scrape.limit or limits.stale_seconds
    if 0 <= age <= limit:
        return None
    surplus = 0 if age <= max(YIELD_STALE_SECONDS, 2 * limit) else sight.batch.requests
    signal = "still_seconds" if scrape.frozen else "age_seconds"
    return Decision(0, Reason.CLOSED_STALE, signal, age, limit, surplus=surplus)


def _law(state: State, sight: Signals, limits: HeadroomLimits) -> tuple[State, Decision]:
    assert sight.scrape is not None and sight.scrape.gauges is not None  # noqa: PT018
    gauges, own = sight.scrape.gauges, sight.batch.requests
    awaiting = sight.sync.awaiting_tokens if sight.sync else 0
    if state.waiting_since is not None:
        stuck = sight.scrape.sampled_at - state.waiting_since
        if stuck < STUCK_SECONDS:
            return state, Decision(0, Reason.CLOSED_SYNC_WAITING, "sync_waiting", _sync_waiting(sight.scrape), 1)
        return _halved(state, sight, Decision(0, Reason.CLOSED_SYNC_WAITING, "stuck_seconds", stuck, STUCK_SECONDS))
    if awaiting > limits.burst_tokens:
        burst = Decision(0, Reason.YIELD_BURST, "sync_prompt_tokens", awaiting, limits.burst_tokens)
        return _halved(state, sight, burst)
    if not gauges.kv_usage < limits.kv_ceiling:
        return state, Decision(0, Reason.CLOSED_KV, "kv_usage", gauges.kv_usage, limits.kv_ceiling)
    load = max(own, gauges.running + gauges.waiting + own - sight.scrape.own)  # ours that came or left since
    usable = limits.slots - limits.reserve
    tracked, reason, signal, value, threshold = _tracked(state, sight, limits)
    allowance = min(limits.cap, own + usable - load, max(limits.floor, _fitting(tracked, sight, limits)))
    if load >= usable:
        over = load - usable if load > own else 0
        return state, Decision(max(0, allowance), Reason.CLOSED_SLOTS, "load", load, usable, surplus=min(own, over))
    state = tracked
    if reason in (Reason.OPEN, Reason.RAMP) and sight.urgency > 0:
        reason = Reason.DEADLINE_RAMP
    paced = 0 if awaiting else limits.prefill_tokens
    return state, Decision(allowance, reason, signal, value, threshold, paced, tokens=int(state.window))


def _halved(state: State, sight: Signals, decision: Decision) -> tuple[State, Decision]:
    """Yield what the halved window does not hold; a burst halves it once."""
    if sight.now < state.hold_until:
        return state, replace(decision, tokens=int(state.window))
    held = sight.batch.context_tokens
    window = max(state.mean_tokens, min(state.window, float(held)) / 2)
    surplus = math.ceil(max(0.0, held - window) / state.mean_tokens)
    state = replace(state, window=window, slow_start=False, hold_until=sight.now + HOLD_SECONDS)
    return state, replace(decision, surplus=min(surplus, sight.batch.requests), tokens=int(window))


def _tracked(state: State, sight: Signals, limits: HeadroomLimits) -> tuple[State, Reason, str, float, float]:
    """Move the window once a scrape; say why it moved, by which signal, value and threshold, until the next one."""
    assert sight.scrape is not None
    if (moved := state.moved) is None or sight.scrape.sampled_at > state.acted_on:
        state, moved = _moved(state, sight, limits)
        state = replace(state, acted_on=sight.scrape.sampled_at, moved=moved)
    return state, *moved


def _moved(state: State, sight: Signals, limits: HeadroomLimits) -> tuple[State, Comparison]:
    steps, permitted = sight.steps, _permitted(state, sight, limits)
    alone = steps.alone if steps is not None and _expects_sync(state, sight.now) else 0.0
    measured = steps.measured if steps is not None else 0.0
    off = (permitted - measured) / max(permitted - alone, 1e-4)
    said = ("step_seconds", measured, permitted)
    if off < 0:
        shrunk = max(state.mean_tokens, min(state.window, float(sight.batch.context_tokens)) * max(DRAIN, 1 + off / 10))
        return replace(state, window=shrunk, slow_start=False), (Reason.SHRINK_LATENCY, *said)
    if (still := _held_still(state, sight)) is not None:
        return state, still
    if state.slow_start and off > ROOM:
        return replace(state, window=state.window * SLOW_START), (Reason.RAMP, *said)
    grown = state.window + STEP_REQUESTS * off * state.mean_tokens
    return replace(state, window=grown, slow_start=False), (Reason.OPEN, *said)


def _held_still(state: State, sight: Signals) -> Comparison | None:
    """Why the window may not grow: after a yield, while steps beside synchronous work are unknown, or unused as it is."""
    held = sight.batch.context_tokens
    if sight.now < state.hold_until:
        return Reason.HOLD, "hold_seconds", state.hold_until - sight.now, 0.0
    if sight.steps is None and _expects_sync(state, sight.now):
        return Reason.HOLD, "unknown_steps", 0.0, 1.0
    if held < state.window / 2:
        return Reason.OPEN, "context_tokens", float(held), state.window
    return None


def _fitting(state: State, sight: Signals, limits: HeadroomLimits) -> int:
    """Requests that the window holds and that the step model says a step of synchronous decoding has room for."""
    held = max(1, int(state.window / state.mean_tokens))
    steps = sight.steps
    if steps is None or steps.per_request <= 0:
        return held
    if not _expects_sync(state, sight.now):
        return max(1, int(min(held, _permitted(state, sight, limits) / steps.per_request)))
    room = max(_permitted(state, sight, limits), (1 + limits.tolerance) * steps.decode) - steps.decode
    return int(min(held, room / steps.per_request))


def _permitted(state: State, sight: Signals, limits: HeadroomLimits) -> float:
    """Seconds that a step may take: the budget, more as a deadline comes near, but never beyond the ceiling."""
    if not _expects_sync(state, sight.now):
        return max(limits.idle_cap, limits.idle_stretch * (sight.steps.shortest if sight.steps else 0.0))
    alone, decode = (sight.steps.alone, sight.steps.decode) if sight.steps else (0.0, 0.0)
    budget = max(limits.itl_budget, limits.itl_stretch * decode)
    stepwise = math.ceil(max(0.0, min(1.0, sight.urgency)) * 4) / 4
    budget += stepwise * max(0.0, limits.itl_ceiling - budget)
    return max(budget, (1 + limits.tolerance) * alone)


def _expects_sync(state: State, now: float) -> bool:
    return now - state.sync_seen < CALM_SECONDS


def _sync_present(sight: Signals) -> bool:
    if sight.sync is not None and sight.sync.open:
        return True
    gauges = sight.scrape.gauges if sight.scrape else None
    return gauges is not None and sight.scrape is not None and gauges.running + gauges.waiting > sight.scrape.own


def _sync_waiting(scrape: Scrape | None) -> int:
    """Requests that wait in the engine and are not ours."""
    if scrape is None or scrape.gauges is None:
        return 0
    gauges = scrape.gauges
    return min(gauges.waiting, max(0, gauges.running + gauges.waiting - scrape.own))
