"""Whether the gate of an engine with these limits can close and open. Pure: the controller itself is run, before any work.

Each signal alone is raised to the largest value that an engine can report, while the engine is otherwise idle. The controller
must then grant nothing (for long steps: less than before) and name that signal. When the engine is idle again the gate must
open. The value at which a signal closes the gate is found by bisection, so the reported value is measured.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from app.headroom.arrivals import SyncLoad
from app.headroom.controller import Decision, State, decide
from app.headroom.engine_metrics import EngineGauges
from app.headroom.gate_rules import CLOSED_BY_FAILURE, CLOSING_SIGNALS, ClosingSignal, HeadroomLimits, Reason
from app.headroom.signals import BatchLoad, Scrape, Signals, StepTime
from app.headroom.stream_pace import FIRST_TOKEN_SECONDS, FirstTokenWait

LONGEST_SILENCE = 60.0  # seconds without telemetry, after which every gate must be closed
LONGEST_STEP = 10.0  # seconds
LARGEST_BURST = 1 << 20  # tokens of synchronous prompts at a time
TICK = 0.1
RECOVERY = 10.0  # seconds of idleness after which the gate must be open

_IDLE = EngineGauges(running=0, waiting=0, kv_usage=0.0, generation_tokens=0, prompt_tokens=0, preemptions=0)
_BRIEF = 1e-6  # seconds
_BISECTIONS = 60  # more than a float has bits


class SelfTestError(Exception):
    """A signal cannot close the gate, or the gate cannot open. The message names the signal."""


@dataclass(frozen=True, slots=True)
class Closing:
    """`signal` closes the gate from the value `closes_at` on, in the unit of the signal, with this reason."""

    signal: str
    closes_at: float
    reason: Reason


@dataclass(frozen=True, slots=True)
class _Case:
    """One signal and its values from `idle` to `extreme`. `whole`: it is a count. `with_value`: signals that have a value."""

    signal: str
    reason: Reason
    idle: float
    extreme: float
    whole: bool
    with_value: Callable[[Signals, float], Signals]


def prove(limits: HeadroomLimits) -> list[Closing]:
    """Every signal that closes the gate, and the value at which it does. Raises SelfTestError."""
    state, now, decision = _recovered(State(), 0.0, limits)
    if not decision.allowance:
        raise SelfTestError(f"{decision.signal}: the gate of an idle engine cannot open; {_described(decision)}")
    if limits.floor >= min(limits.cap, limits.slots - limits.reserve):
        raise SelfTestError("step_seconds: batch work cannot be reduced, because its floor is as large as its cap")
    return [_closing(case, state, now, decision.allowance, limits) for case in _cases(limits)]


def _closing(case: _Case, state: State, now: float, granted: int, limits: HeadroomLimits) -> Closing:
    signals = _idle(now + TICK)

    def closed(value: float) -> tuple[bool, State, Decision]:
        after, decision = decide(state, case.with_value(signals, value), limits)
        most = max(1, limits.floor, granted - 1) if case.reason is Reason.SHRINK_LATENCY else 0
        return decision.reason is case.reason and decision.allowance <= most, after, decision

    shut, saturated, decision = closed(case.extreme)
    if not shut:
        raise SelfTestError(f"{case.signal}: {case.extreme:g} does not close the gate; {_described(decision)}")
    _, _, reopened = _recovered(saturated, now + TICK, limits)
    if not reopened.allowance:
        raise SelfTestError(f"{case.signal}: the gate does not open again; {_described(reopened)}")
    return Closing(case.signal, _boundary(case, lambda value: closed(value)[0]), case.reason)


def _cases(limits: HeadroomLimits) -> list[_Case]:
    """Every signal that may close the gate. With a static cap only failures of telemetry do."""
    slots = float(limits.slots)
    cases = [
        _Case("telemetry", Reason.CLOSED_UNKNOWN, 1, 0, True, _readable),
        _Case("age_seconds", Reason.CLOSED_STALE, 0, LONGEST_SILENCE, False, _aged),
        _Case("sync_waiting", Reason.CLOSED_SYNC_WAITING, 0, slots, True, _waiting),
        _Case("sync_prompt_tokens", Reason.YIELD_BURST, 0, LARGEST_BURST, True, _announced),
        *map(_gauge_case, CLOSING_SIGNALS),
        _Case("load", Reason.CLOSED_SLOTS, 0, slots, True, _running),
        _Case("step_seconds", Reason.SHRINK_LATENCY, 0, LONGEST_STEP, False, _stepping),
    ]
    if limits.blind:
        cases.append(_Case("first_token_seconds", Reason.CLOSED_LATENCY, 0, LONGEST_SILENCE, False, _unanswered))
    return [case for case in cases if not limits.static or case.reason in CLOSED_BY_FAILURE]


def _gauge_case(signal: ClosingSignal) -> _Case:
    def shown(signals: Signals, value: float) -> Signals:
        return _scraped(signals, signal.shown(_IDLE, value))

    return _Case(signal.name, signal.reason, 0, signal.most, signal.whole, shown)


def _scraped(signals: Signals, gauges: EngineGauges) -> Signals:
    return replace(signals, scrape=Scrape(gauges, signals.now, own=0))


def _readable(signals: Signals, value: float) -> Signals:
    return signals if value else replace(signals, scrape=Scrape(None, signals.now, own=0))


def _aged(signals: Signals, value: float) -> Signals:
    return replace(signals, scrape=Scrape(_IDLE, signals.now - value, own=0))


def _waiting(signals: Signals, value: float) -> Signals:
    return _scraped(signals, replace(_IDLE, waiting=int(value)))


def _announced(signals: Signals, value: float) -> Signals:
    return replace(signals, sync=SyncLoad(open=1, awaiting=1, awaiting_tokens=int(value), last_arrival=signals.now))


def _unanswered(signals: Signals, value: float) -> Signals:
    return replace(signals, first_token=FirstTokenWait(value, FIRST_TOKEN_SECONDS))


def _running(signals: Signals, value: float) -> Signals:
    return _scraped(signals, replace(_IDLE, running=int(value)))


def _stepping(signals: Signals, value: float) -> Signals:
    """One synchronous request decodes. Without batch work its steps would take almost no time."""
    steps = StepTime(value, alone=_BRIEF, decode=_BRIEF, shortest=_BRIEF, per_request=0.0)
    return replace(signals, sync=SyncLoad(open=1, last_arrival=signals.now), steps=steps)


def _boundary(case: _Case, closed: Callable[[float], bool]) -> float:
    """The value nearest to the idle one that closes the gate, to six digits."""
    idle, shut = case.idle, case.extreme
    if closed(idle):
        raise SelfTestError(f"{case.signal}: the value of an idle engine, {idle:g}, closes the gate")
    for _ in range(_BISECTIONS):
        if case.whole and abs(shut - idle) <= 1:
            break
        middle = (idle + shut) / 2
        middle = float(int(middle)) if case.whole else middle
        idle, shut = (idle, middle) if closed(middle) else (middle, shut)
    return float(f"{shut:.6g}")


def _recovered(state: State, now: float, limits: HeadroomLimits) -> tuple[State, float, Decision]:
    """The decision after a while of idleness. The engine has no batch request, so the window does not grow."""
    until = now + RECOVERY
    state, decision = decide(state, _idle(now), limits)
    while now < until:
        now += TICK
        state, decision = decide(state, _idle(now), limits)
    return state, now, decision


def _idle(now: float) -> Signals:
    return Signals(now, Scrape(_IDLE, now, own=0), BatchLoad())


def _described(decision: Decision) -> str:
    return f"it is {decision.reason} with {decision.signal} {decision.value:g} against {decision.threshold:g}"
