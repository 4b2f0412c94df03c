"""The reasons, limits and signals of the gate. Pure.

To add a signal that closes the gate: read it (from the engine's page, in `engine_metrics.py`), give it a limit in
`app/settings.py`, and add a `ClosingSignal` here. The controller, the self-test at start-up and the messages follow this table.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from app.headroom.engine_metrics import EngineGauges
from app.settings import Settings
from workers.engine.step_budget import StepBudget


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
    FULL = "full"
    CLOSED_SLOTS = "closed_slots"
    CLOSED_KV = "closed_kv"
    CLOSED_ASLEEP = "closed_asleep"
    CLOSED_LATENCY = "closed_latency"
    CLOSED_STALE = "closed_stale"
    CLOSED_UNKNOWN = "closed_unknown"
    CLOSED_LEARNING = "closed_learning"
    CLOSED_MODEL_ERROR = "closed_model_error"
    PLUGIN_TRIPPED = "plugin_tripped"


CLOSED_BY_FAILURE = frozenset({Reason.CLOSED_STALE, Reason.CLOSED_UNKNOWN})


BLIND_CAP = 8  # batch requests in an engine that shows neither its load nor its slots


@dataclass(frozen=True, slots=True)
class HeadroomLimits:
    """The limits of one engine's gate. The settings of the same names say what each one means.

    `cap`: most batch requests in flight. `slots`: requests that the engine runs at once, of which `reserve` are never given
    to batch work. `floor`: requests left to batch work unless the gate is closed. `prefill_tokens`: most tokens of batch
    prompts that may be uncomputed. `static`: the allowance is always `cap`, unless telemetry fails. `blind`: the engine may show
    no load, so that cap and latency are all there is.
    """

    cap: int
    slots: int
    reserve: int
    kv_ceiling: float
    stale_seconds: float
    step: StepBudget
    burst_tokens: int
    prefill_tokens: int
    floor: int
    static: bool
    blind: bool = False

    @classmethod
    def of(cls, settings: Settings, slots: int, *, blind: bool = False, slots_known: bool = True) -> Self:
        """The limits for an engine of so many slots. If they are not known, they are what a search believes (`slot_search`);
        an engine that may show no load has a small cap then.
        """
        free = max(1, slots - settings.sync_reserve_slots)
        return cls(
            cap=settings.batch_max_in_flight or (min(free, BLIND_CAP) if blind and not slots_known else free),
            slots=slots,
            reserve=settings.sync_reserve_slots,
            kv_ceiling=settings.kv_ceiling,
            stale_seconds=settings.stale_seconds,
            step=StepBudget.of(settings),
            burst_tokens=settings.burst_tokens,
            prefill_tokens=settings.batch_prefill_tokens,
            floor=settings.batch_min_in_flight if slots_known else min(settings.batch_min_in_flight, free - 1),
            static=settings.headroom == "static",
            blind=blind,
        )


@dataclass(frozen=True, slots=True)
class ClosingSignal:
    """A gauge of the engine that closes the gate to new batch requests unless it is below its limit.

    `meaning` ends the sentence "engine-0 …" and `comparison` follows it. The end of `name` is its unit (app.batches.why_text).
    `most`: the largest value that an engine can report. `whole`: the value is a count. `shown`: gauges with another value, for
    the self-test.
    """

    name: str
    reason: Reason
    meaning: str
    comparison: str
    value: Callable[[EngineGauges], float]
    limit: Callable[[HeadroomLimits], float]
    most: float
    whole: bool
    shown: Callable[[EngineGauges, float], EngineGauges]


CLOSING_SIGNALS = (
    ClosingSignal(
        name="kv_usage",
        reason=Reason.CLOSED_KV,
        meaning="has no memory left for batch work",
        comparison="KV cache {value} used, limit {threshold}",
        value=lambda gauges: gauges.kv_usage,
        limit=lambda limits: limits.kv_ceiling,
        most=1.0,
        whole=False,
        shown=lambda gauges, value: replace(gauges, kv_usage=value),
    ),
    ClosingSignal(
        name="asleep",
        reason=Reason.CLOSED_ASLEEP,
        meaning="has been sent to sleep",
        comparison="until it is woken",
        value=lambda gauges: gauges.asleep,
        limit=lambda limits: 1.0,
        most=1.0,
        whole=True,
        shown=lambda gauges, value: replace(gauges, asleep=value >= 1),
    ),
)


def closed_by(gauges: EngineGauges, limits: HeadroomLimits) -> tuple[Reason, str, float, float] | None:
    """The first signal that is not below its limit: its reason, name, value and limit. NaN is not below any limit."""
    for signal in CLOSING_SIGNALS:
        value, limit = signal.value(gauges), signal.limit(limits)
        if not value < limit:
            return signal.reason, signal.name, value, limit
    return None
