"""Whether the gate of an engine with these limits can close and open. Pure: proven on the law itself, before any real work.

Each signal alone is driven to the most that an engine can show, while all else is calm. There the law must grant nothing
(for steps that take too long: less), and say that it was this signal; back in calm it must open again. In between, the
value at which it closes is found by halving: what is reported is measured, not copied from the settings.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from app.headroom.arrivals import SyncLoad
from app.headroom.controller import CLOSED_BY_FAILURE, Decision, HeadroomLimits, Reason, State, decide
from app.headroom.engine_metrics import EngineGauges
from app.headroom.signals import BatchLoad, Scrape, Signals, StepTime

LONGEST_SILENCE = 60.0  # seconds; a gate that is open after a minute without telemetry is none
LONGEST_STEP = 10.0  # seconds
LARGEST_BURST = 1 << 20  # tokens of synchronous prompts at once
TICK = 0.1
RECOVERY = 10.0  # seconds of calm after which the gate must be open

_QUIET = EngineGauges(running=0, waiting=0, kv_usage=0.0, generation_tokens=0, prompt_tokens=0, preemptions=0)
_BRIEF = 1e-6  # seconds
_HALVINGS = 60  # more than the digits of a float


class SelfTestError(Exception):
    """A signal cannot close the gate, or the gate cannot open; the message names the signal."""


@dataclass(frozen=True, slots=True)
class Closing:
    """`signal` closes the gate from `closes_at` on, in the signal's own unit, and the law calls it `reason`."""

    signal: str
    closes_at: float
    reason: Reason


@dataclass(frozen=True, slots=True)
class _Drive:
    """How to show the law one `signal` from `calm` to `extreme`; `whole`: it is a count."""

    signal: str
    reason: Reason
    calm: float
    extreme: float
    whole: bool
    show: Callable[[Signals, float], Signals]


def prove(limits: HeadroomLimits) -> list[Closing]:
    """Every signal that closes the gate, with the value from which on it does. Raises SelfTestError."""
    state, now, decision = _recovered(State(), 0.0, limits)
    if not decision.allowance:
        raise SelfTestError(f"{decision.signal}: the gate of an idle engine cannot open; {_told(decision)}")
    if limits.floor >= min(limits.cap, limits.slots - limits.reserve):
        raise SelfTestError("step_seconds: nothing can be taken from batch work, whose floor is all that it may hold")
    return [_closing(drive, state, now, decision.allowance, limits) for drive in _drives(limits)]


def _closing(drive: _Drive, state: State, now: float, granted: int, limits: HeadroomLimits) -> Closing:
    sight = _calm(now + TICK)

    def closed(value: float) -> tuple[bool, State, Decision]:
        after, decision = decide(state, drive.show(sight, value), limits)
        most = max(1, limits.floor, granted - 1) if drive.reason is Reason.SHRINK_LATENCY else 0
        return decision.reason is drive.reason and decision.allowance <= most, after, decision

    shut, saturated, decision = closed(drive.extreme)
    if not shut:
        raise SelfTestError(f"{drive.signal}: {drive.extreme:g} does not close the gate; {_told(decision)}")
    _, _, reopened = _recovered(saturated, now + TICK, limits)
    if not reopened.allowance:
        raise SelfTestError(f"{drive.signal}: the gate does not open again; {_told(reopened)}")
    return Closing(drive.signal, _boundary(drive, lambda value: closed(value)[0]), drive.reason)


def _drives(limits: HeadroomLimits) -> list[_Drive]:
    """Every signal that may close the gate, up to where an engine of these slots can take it. A static cap heeds failures."""
    slots = float(limits.slots)
    drives = [
        _Drive("telemetry", Reason.CLOSED_UNKNOWN, 1, 0, True, _readable),
        _Drive("age_seconds", Reason.CLOSED_STALE, 0, LONGEST_SILENCE, False, _aged),
        _Drive("sync_waiting", Reason.CLOSED_SYNC_WAITING, 0, slots, True, _waiting),
        _Drive("sync_prompt_tokens", Reason.YIELD_BURST, 0, LARGEST_BURST, True, _announced),
        _Drive("kv_usage", Reason.CLOSED_KV, 0, 1, False, _filled),
        _Drive("load", Reason.CLOSED_SLOTS, 0, slots, True, _running),
        _Drive("step_seconds", Reason.SHRINK_LATENCY, 0, LONGEST_STEP, False, _stepping),
    ]
    return [drive for drive in drives if not limits.static or drive.reason in CLOSED_BY_FAILURE]


def _scraped(sight: Signals, gauges: EngineGauges) -> Signals:
    return replace(sight, scrape=Scrape(gauges, sight.now, own=0))


def _readable(sight: Signals, value: float) -> Signals:
    return sight if value else replace(sight, scrape=Scrape(None, sight.now, own=0))


def _aged(sight: Signals, value: float) -> Signals:
    return replace(sight, scrape=Scrape(_QUIET, sight.now - value, own=0))


def _waiting(sight: Signals, value: float) -> Signals:
    return _scraped(sight, replace(_QUIET, waiting=int(value)))


def _announced(sight: Signals, value: float) -> Signals:
    return replace(sight, sync=SyncLoad(open=1, awaiting=1, awaiting_tokens=int(value), last_arrival=sight.now))


def _filled(sight: Signals, value: float) -> Signals:
    return _scraped(sight, replace(_QUIET, kv_usage=value))


def _running(sight: Signals, value: float) -> Signals:
    return _scraped(sight, replace(_QUIET, running=int(value)))


def _stepping(sight: Signals, value: float) -> Signals:
    """One synchronous request that decodes; alone its steps would take next to no time."""
    steps = StepTime(value, alone=_BRIEF, decode=_BRIEF, shortest=_BRIEF, per_request=0.0)
    return replace(sight, sync=SyncLoad(open=1, last_arrival=sight.now), steps=steps)


def _boundary(drive: _Drive, closed: Callable[[float], bool]) -> float:
    """The value nearest to calm that closes, to six digits."""
    calm, shut = drive.calm, drive.extreme
    if closed(calm):
        raise SelfTestError(f"{drive.signal}: {calm:g} closes the gate already")
    for _ in range(_HALVINGS):
        if drive.whole and abs(shut - calm) <= 1:
            break
        middle = (calm + shut) / 2
        middle = float(int(middle)) if drive.whole else middle
        calm, shut = (calm, middle) if closed(middle) else (middle, shut)
    return float(f"{shut:.6g}")


def _recovered(state: State, now: float, limits: HeadroomLimits) -> tuple[State, float, Decision]:
    """Calm for a while. It holds nothing of ours, so the window stays as small as it may ever be."""
    until = now + RECOVERY
    state, decision = decide(state, _calm(now), limits)
    while now < until:
        now += TICK
        state, decision = decide(state, _calm(now), limits)
    return state, now, decision


def _calm(now: float) -> Signals:
    return Signals(now, Scrape(_QUIET, now, own=0), BatchLoad())


def _told(decision: Decision) -> str:
    return f"it is {decision.reason} with {decision.signal} {decision.value:g} against {decision.threshold:g}"
