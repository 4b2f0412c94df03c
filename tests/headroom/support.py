"""Short ways to show the law an engine, for tests."""

from collections.abc import Iterable
from dataclasses import replace

from app.headroom.arrivals import SyncLoad
from app.headroom.controller import Decision, State, decide
from app.headroom.engine_metrics import EngineGauges
from app.headroom.gate_rules import HeadroomLimits
from app.headroom.signals import BatchLoad, Scrape, Signals, StepTime
from app.settings import Settings

SHIPPED = Settings.model_construct()  # as if nothing were set in the environment
DEFAULT = HeadroomLimits.of(SHIPPED, 256)
LIMITS = replace(
    HeadroomLimits.of(SHIPPED, 32),
    cap=16,
    step=replace(DEFAULT.step, itl_budget=0.025, itl_stretch=1.25, idle_stretch=2.0, tolerance=0.05),
)
MEAN = 512  # tokens of a request in these tests, which is what the law begins with
WIDE = State(window=1e6, slow_start=False)
LISTENING = SyncLoad(open=1)
STEPS = StepTime(measured=0.020, alone=0.010, decode=0.010, shortest=0.005, per_request=0.001)


def look(
    now: float = 10.0,
    *,
    own: int = 0,
    seen: int | None = None,
    running: int | None = None,
    waiting: int = 0,
    kv: float = 0.1,
    age: float = 0.0,
    sync: SyncLoad | None = None,
    steps: StepTime | None = None,
    urgent: float = 0.0,
) -> Signals:
    """An engine with `own` requests of ours, of which the scrape shows `seen`, and as many running unless told otherwise."""
    seen = own if seen is None else seen
    gauges = EngineGauges(own if running is None else running, waiting, kv, 0, 0, 0)
    batch = BatchLoad(requests=own, context_tokens=own * MEAN)
    return Signals(now, Scrape(gauges, now - age, seen), batch, sync, steps, urgent)


def law(signals: Signals, state: State = WIDE, limits: HeadroomLimits = LIMITS) -> Decision:
    return decide(state, signals, limits)[1]


def follow(sights: Iterable[Signals], state: State = WIDE, limits: HeadroomLimits = LIMITS) -> tuple[State, Decision]:
    for signals in sights:
        state, decision = decide(state, signals, limits)
    return state, decision
