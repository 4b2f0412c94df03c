"""How many batch requests a worker may hold in an engine now (L1). Pure: time and telemetry are arguments.

A tick comes every tenth of a second, and at once when a synchronous request is announced. The first line that matches
decides. A value that is unknown counts as full.

    there is no readable telemetry                                closed_unknown       0
    the last scrape is too old, or counters have not changed      closed_stale         0; later, all requests yield
    synchronous requests have waited for 0.3 s                    closed_sync_waiting  window halved, surplus yields
    a burst of synchronous prompts was announced                  yield_burst          window halved, surplus yields
    the first caller comes after a silence that grew the steps    yield_burst          what no longer fits yields
    a first token takes too long, if the engine shows no queue    closed_latency       nothing new
    a signal of `gate_rules.CLOSING_SIGNALS` reaches its limit    its own reason       nothing new
    running + waiting + reserve reaches the engine's slots        full                 own requests, if there are some
    the same, without own requests or with an excess              closed_slots         own requests, less the excess
    steps take longer than the step budget allows                 shrink_latency       window shrinks, nothing is aborted
    a yield was less than a second ago                            hold                 window stays
    otherwise                                                     ramp, open           window grows, if it is used

The window is that of LEDBAT (RFC 6817) with a predicted base. `off` is the part of the allowed extra step time that is left,
where extra = measured step - predicted step of the synchronous work alone. The window counts tokens of context, because a
long request lengthens every step more than a short one. The step model caps the window in advance: there are never more
requests than fit into the step budget beside synchronous decoding.

An engine without requests is idle, not stale; so is one that sleeps, whose counters cannot change. The age of a scrape does not
include time in which this process did not run. The sampler learns the largest normal age; it is at least `stale_seconds`.
"""

import math
from dataclasses import dataclass, replace

from app.headroom.gate_rules import HeadroomLimits, Reason, closed_by
from app.headroom.signals import Signals
from workers.engine.quiet import Quiet
from workers.engine.step_budget import UNLIMITED_TOKENS

STUCK_SECONDS = 0.3  # synchronous requests that wait in the engine for this long make batch work yield
SYNC_EXPECTED_SECONDS = 5.0  # for this long after a synchronous request, the next one is expected
SILENCE_SECONDS = 10.0  # without a caller, from which on a step is said to be long because nobody calls
HOLD_SECONDS = 1.0
YIELD_STALE_SECONDS = 5.0
SLOW_START = 1.15
ROOM = 0.25  # slow start ends when less than this part of the allowed extra step time is left
NOISE = 0.05  # extra step time below this part of the step itself is not told from noise
STEP_REQUESTS = 4.0  # additive growth per scrape, in requests of mean size
DRAIN = 0.9  # one scrape of too long steps never shrinks the window by a smaller factor
TYPICAL_TOKENS = 512  # of a request, before the first one is seen
MEMORY = 0.9  # weight of earlier ticks in the mean size of a request
AT_EASE, AT_RISK = 0.20, 0.05  # urgency is 0 above the first share of slack, and 1 below the second

Comparison = tuple[Reason, str, float, float]  # the reason, and the signal whose value was compared with a threshold


@dataclass(frozen=True, slots=True)
class State:
    """What the controller remembers between ticks. `since`: monotonic second at which `reason` began; `window`: in tokens."""

    reason: Reason = Reason.CLOSED_UNKNOWN
    since: float = 0.0
    window: float = 4.0 * TYPICAL_TOKENS
    slow_start: bool = True
    hold_until: float = -math.inf
    waiting_since: float | None = None  # start of the first scrape in which synchronous requests wait
    sync_seen: float = -math.inf  # when a synchronous request was last known to be there
    mean_tokens: float = TYPICAL_TOKENS
    acted_on: float = -math.inf  # start of the scrape that last moved the window
    moved: Comparison | None = None  # why the window moved; holds until the next scrape
    present: bool = False  # whether synchronous requests were there at the last tick
    quiet: Quiet | None = None  # None before the first tick
    woken: float = 0.0  # seconds to which idle steps had grown, if this tick saw the caller who ended that


@dataclass(frozen=True, slots=True)
class Decision:
    """The allowance, its reason, and the comparison that decided it: `signal` was `value` against `threshold`.

    `allowance`: requests that may be in flight. `prefill_tokens`: tokens of batch prompts that may be uncomputed; the first
    request is exempt. `surplus`: requests to yield now. `tokens`: the window. `all_yield`: those too that must not yield any
    more, because the engine runs none.
    """

    allowance: int
    reason: Reason
    signal: str
    value: float
    threshold: float
    prefill_tokens: int = 0
    surplus: int = 0
    tokens: int = 0
    all_yield: bool = False


def urgency(slack: float | None) -> float:
    """The urgency of a deadline, 0..1, from its slack as a share of its window: 0 from 20 % on, 1 up to 5 %."""
    return 0.0 if slack is None else max(0.0, min(1.0, (AT_EASE - slack) / (AT_EASE - AT_RISK)))


def decide(state: State, signals: Signals, limits: HeadroomLimits) -> tuple[State, Decision]:
    """One tick. All times are seconds of one monotonic clock."""
    state = _observed(state, signals)
    failure = _failure(signals, limits)
    if failure is not None:
        return _noted(replace(state, slow_start=True, window=4 * state.mean_tokens), signals, failure)
    if limits.static:
        own, cap = signals.batch.requests, limits.cap
        static = Decision(cap, Reason.OPEN, "static_cap", own, cap, prefill_tokens=UNLIMITED_TOKENS)
        return _noted(state, signals, static)
    state, decision = _rule(state, signals, limits)
    return _noted(state, signals, decision)


def _noted(state: State, signals: Signals, decision: Decision) -> tuple[State, Decision]:
    if decision.reason is not state.reason:
        state = replace(state, reason=decision.reason, since=signals.now)
    return state, decision


def _observed(state: State, signals: Signals) -> State:
    """The state with the mean size of a request, and the times of synchronous requests that are there or wait."""
    waiting, since = signals.scrape.others_waiting if signals.scrape else 0, state.waiting_since
    if signals.scrape is not None:
        since = (signals.scrape.sampled_at if since is None else since) if waiting else None
    present = _sync_present(signals)
    quiet, woken = _quiet(state, signals, present)
    seen = signals.now if present else state.sync_seen
    state = replace(state, waiting_since=since, sync_seen=seen, present=present, quiet=quiet, woken=woken)
    if not signals.batch.requests:
        return state
    mean = signals.batch.context_tokens / signals.batch.requests
    return replace(state, mean_tokens=max(1.0, MEMORY * state.mean_tokens + (1 - MEMORY) * mean))


def _quiet(state: State, signals: Signals, present: bool) -> tuple[Quiet, float]:
    """The silence of callers after this tick, and the seconds of an idle step until now, if a caller has come."""
    quiet = state.quiet or Quiet(signals.now)
    if not present:
        return quiet, 0.0
    announced = signals.sync.last_arrival if signals.sync is not None else -math.inf
    if not state.present or announced > quiet.since:
        return quiet.arrived(signals.now), quiet.step(signals.now)
    return quiet.present(signals.now), 0.0


def _failure(signals: Signals, limits: HeadroomLimits) -> Decision | None:
    scrape = signals.scrape
    if scrape is None or scrape.gauges is None:
        surplus = signals.batch.requests if scrape is not None else 0
        return Decision(0, Reason.CLOSED_UNKNOWN, "telemetry", 0, 1, surplus=surplus)
    age, limit = signals.age(scrape.sampled_at), scrape.limit or limits.stale_seconds
    if 0 <= age <= limit or (scrape.frozen and scrape.gauges.asleep):
        return None
    surplus = 0 if age <= max(YIELD_STALE_SECONDS, 2 * limit) else signals.batch.requests
    signal = "still_seconds" if scrape.frozen else "age_seconds"
    return Decision(0, Reason.CLOSED_STALE, signal, age, limit, surplus=surplus)


def _rule(state: State, signals: Signals, limits: HeadroomLimits) -> tuple[State, Decision]:
    assert signals.scrape is not None and signals.scrape.gauges is not None  # noqa: PT018
    gauges, own = signals.scrape.gauges, signals.batch.requests
    awaiting = signals.sync.awaiting_tokens if signals.sync else 0
    if state.waiting_since is not None:
        stuck = signals.scrape.sampled_at - state.waiting_since
        if stuck < STUCK_SECONDS:
            return state, Decision(0, Reason.CLOSED_SYNC_WAITING, "sync_waiting", signals.scrape.others_waiting, 1)
        return _halved(state, signals, Decision(0, Reason.CLOSED_SYNC_WAITING, "stuck_seconds", stuck, STUCK_SECONDS))
    if (burst := _burst(state, signals, limits, awaiting)) is not None:
        return burst
    wait = signals.first_token
    slow = (Reason.CLOSED_LATENCY, "first_token_seconds", wait.seconds, wait.limit) if wait and wait.late else None
    if (closed := slow or closed_by(gauges, limits)) is not None:
        return state, Decision(0, *closed)
    load = max(
        own, gauges.running + gauges.waiting + own - signals.scrape.own
    )  # corrected for our requests since the scrape
    usable = limits.slots - limits.reserve
    tracked, reason, signal, value, threshold = _tracked(state, signals, limits)
    allowance = min(limits.cap, own + usable - load, max(limits.floor, _fitting(tracked, signals, limits)))
    if load >= usable:
        over = load - usable if load > own else 0
        reason = Reason.FULL if 0 < own <= allowance else Reason.CLOSED_SLOTS
        return state, Decision(max(0, allowance), reason, "load", load, usable, surplus=min(own, over))
    state = tracked
    if reason in (Reason.OPEN, Reason.RAMP) and signals.urgency > 0:
        reason = Reason.DEADLINE_RAMP
    paced = 0 if awaiting else limits.prefill_tokens
    return state, Decision(allowance, reason, signal, value, threshold, paced, tokens=int(state.window))


def _burst(state: State, signals: Signals, limits: HeadroomLimits, awaiting: int) -> tuple[State, Decision] | None:
    """Yield for a burst of prompts, or for the first caller after a silence in which idle steps have grown."""
    if awaiting > limits.burst_tokens:
        burst = Decision(0, Reason.YIELD_BURST, "sync_prompt_tokens", awaiting, limits.burst_tokens)
        return _halved(state, signals, burst)
    own, fitting = signals.batch.requests, max(limits.floor, _fitting(state, signals, limits))
    if not state.woken or own <= fitting:
        return None
    held, window = signals.batch.context_tokens, max(1, fitting) * state.mean_tokens
    state = replace(state, window=window, slow_start=False, hold_until=signals.now + HOLD_SECONDS)
    surplus, tokens = own - fitting, int(window)
    woken = Decision(0, Reason.YIELD_BURST, "context_tokens", held, window, surplus=surplus, tokens=tokens)
    return state, woken


def _halved(state: State, signals: Signals, decision: Decision) -> tuple[State, Decision]:
    """Halve the window, and yield the requests that no longer fit; a burst halves it once."""
    if signals.now < state.hold_until:
        return state, replace(decision, tokens=int(state.window))
    held = signals.batch.context_tokens
    window = max(state.mean_tokens, min(state.window, float(held)) / 2)
    surplus = math.ceil(max(0.0, held - window) / state.mean_tokens)
    state = replace(state, window=window, slow_start=False, hold_until=signals.now + HOLD_SECONDS)
    return state, replace(decision, surplus=min(surplus, signals.batch.requests), tokens=int(window))


def _tracked(state: State, signals: Signals, limits: HeadroomLimits) -> tuple[State, Reason, str, float, float]:
    """Move the window once per scrape. Until the next scrape the same comparison says why it moved."""
    assert signals.scrape is not None
    if (moved := state.moved) is None or signals.scrape.sampled_at > state.acted_on:
        state, moved = _moved(state, signals, limits)
        state = replace(state, acted_on=signals.scrape.sampled_at, moved=moved)
    return state, *moved


def _moved(state: State, signals: Signals, limits: HeadroomLimits) -> tuple[State, Comparison]:
    steps, allowed = signals.steps, _allowed(state, signals, limits)
    alone = steps.alone if steps is not None and _expects_sync(state, signals.now) else 0.0
    measured = steps.measured if steps is not None else 0.0
    off = (allowed - measured) / max(allowed - alone, NOISE * alone, 1e-4)
    if off < 0:
        used = min(state.window, float(signals.batch.context_tokens))
        shrunk = max(state.mean_tokens, used * max(DRAIN, 1 + off / 10))
        return replace(state, window=shrunk, slow_start=False), (
            Reason.SHRINK_LATENCY,
            "step_seconds",
            measured,
            allowed,
        )
    comparison = step_comparison(measured, allowed, signals.now - state.quiet.since if state.quiet else 0.0)
    if (kept := _why_not_grown(state, signals)) is not None:
        return state, kept
    if state.slow_start and off > ROOM:
        return replace(state, window=state.window * SLOW_START), (Reason.RAMP, *comparison)
    grown = state.window + STEP_REQUESTS * off * state.mean_tokens
    return replace(state, window=grown, slow_start=False), (Reason.OPEN, *comparison)


def step_comparison(measured: float, allowed: float, silence: float) -> tuple[str, float, float]:
    """What a step takes and may take, in seconds; where nobody has called for a while, for how long: in round seconds, so that
    an idle engine has nothing new to report.
    """
    if silence >= SILENCE_SECONDS:
        return "quiet_seconds", silence - silence % (60.0 if silence >= 60 else SILENCE_SECONDS), allowed
    return "step_seconds", measured, allowed


def _why_not_grown(state: State, signals: Signals) -> Comparison | None:
    """Why the window may not grow: a recent yield, unknown step times beside synchronous work, or a window half unused."""
    held = signals.batch.context_tokens
    if signals.now < state.hold_until:
        return Reason.HOLD, "hold_seconds", state.hold_until - signals.now, 0.0
    if signals.steps is None and _expects_sync(state, signals.now):
        return Reason.HOLD, "unknown_steps", 0.0, 1.0
    if held < state.window / 2:
        return Reason.OPEN, "context_tokens", float(held), state.window
    return None


def _fitting(state: State, signals: Signals, limits: HeadroomLimits) -> int:
    """Requests that fit into the window and, by the step model, into the step budget beside synchronous decoding."""
    held = max(1, int(state.window / state.mean_tokens))
    steps = signals.steps
    if steps is None or steps.per_request <= 0:
        return held
    if not _expects_sync(state, signals.now):
        return max(1, int(min(held, _allowed(state, signals, limits) / steps.per_request)))
    room = max(_allowed(state, signals, limits), (1 + limits.step.tolerance) * steps.decode) - steps.decode
    return int(min(held, room / steps.per_request))


def _allowed(state: State, signals: Signals, limits: HeadroomLimits) -> float:
    """Seconds that the step budget allows; a step time that is not known yet counts as 0 s."""
    sync, steps = _expects_sync(state, signals.now), signals.steps
    decode, alone, shortest = (steps.decode, steps.alone, steps.shortest) if steps else (0.0, 0.0, 0.0)
    quiet = state.quiet.step(signals.now) if state.quiet else 0.0
    return limits.step.allowed(decode, alone, shortest, signals.urgency, sync=sync, quiet=quiet)


def _expects_sync(state: State, now: float) -> bool:
    return now - state.sync_seen < SYNC_EXPECTED_SECONDS


def _sync_present(signals: Signals) -> bool:
    if signals.sync is not None and signals.sync.open:
        return True
    return signals.scrape is not None and signals.scrape.others > 0
