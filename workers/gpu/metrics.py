"""`/metrics` of a worker process: by engine, the controller's decision, its reason and its cost; and the state of the GPUs."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from app import part_metrics
from app.engines import page_problems
from app.engines.adoption import DOWN, KEY, MISSING, TOO_SMALL
from app.headroom.gate_rules import Reason
from app.headroom.gpu import Gpu
from app.settings import Settings
from app.tracing.recorder import SpanCounts
from app.usage_counts import UsageCounts
from workers.gpu.caller_times import CallerTimes
from workers.gpu.control_loop import ControlLoop
from workers.gpu.harvest_control import HarvestControl
from workers.gpu.item_runner import ItemRunner
from workers.gpu.puller import Puller

PREFIX = "slackwater_worker_"
REASONS = (*(reason.value for reason in Reason), DOWN, KEY, MISSING, TOO_SMALL)


@dataclass(frozen=True, slots=True)
class HarvestView:
    """The report of the scheduler plug-in (see `workers.engine`). `frozen`: requests now; `plan_seconds`: of the last plan."""

    active: bool
    tripped: bool
    frozen: int
    evictions: int
    faults: int
    plan_seconds: float


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of recent synchronous requests, in seconds."""

    p50: float
    p95: float


@dataclass(frozen=True, slots=True)
class View:
    """The state of a worker at one moment. Counters begin with the process; seconds are None until measured.

    `allowance` and `in_flight`: batch requests. `tokens_allowed`: their tokens of context. `changes`: how often each reason
    began. `probes`: one-token requests that test a closed gate. `harvest` None: the engine has no plug-in. `obstacle`: the code
    of why the plug-in does not rule, although somebody asked for it. `stored`: what the stored results used. `times`: those of
    callers.
    """

    engine: str
    model: str
    mode: str
    reason: str
    allowance: int = 0
    tokens_allowed: int = 0
    in_flight: int = 0
    changes: Mapping[str, int] = field(default_factory=dict)
    yields: int = 0
    resumes: int = 0
    wasted_tokens: int = 0
    resumed_cached_tokens: int = 0
    probes: int = 0
    dropped_decisions: int = 0
    telemetry_age: float | None = None
    predicted_step: float | None = None
    measured_step: float | None = None
    ttft: Latency | None = None
    itl: Latency | None = None
    harvest: HarvestView | None = None
    obstacle: str | None = None
    stored: UsageCounts = field(default_factory=UsageCounts)
    times: CallerTimes | None = None


def port(settings: Settings) -> int:
    """The port of the page; 0: there is none. Processes on one host differ by the number in their engine's name."""
    number = re.search(r"(?<!\d)\d{1,2}$", settings.engine_name)
    first = settings.worker_metrics_port
    return first + int(number[0]) if first and number else first


def view_of(
    control: ControlLoop,
    puller: Puller,
    runner: ItemRunner,
    *,
    engine: str,
    model: str,
    mode: str,
    fault: str | None,
    dropped_decisions: int,
) -> View:
    """The state of a worker now. `fault`: why the engine gets nothing, whatever its headroom."""
    signals, decision, report = control.signals(), control.decision, control.harvest.report
    steps, latency = signals.steps, control.arrivals.latency()
    return View(
        engine=engine,
        model=model,
        mode=mode,
        reason=fault or decision.reason.value,
        allowance=0 if fault else decision.allowance,
        tokens_allowed=decision.tokens,
        in_flight=signals.batch.requests,
        changes=control.changes,
        yields=puller.yields,
        resumes=runner.resumes,
        wasted_tokens=puller.wasted_tokens,
        resumed_cached_tokens=runner.resumed_cached_tokens,
        probes=control.probes,
        dropped_decisions=dropped_decisions,
        telemetry_age=signals.now - signals.scrape.sampled_at if signals.scrape else None,
        predicted_step=report.predicted_seconds if report else steps.alone if steps else None,
        measured_step=report.step_seconds if report else steps.measured if steps else None,
        ttft=_latency(latency.ttft_p50, latency.ttft_p95),
        itl=_latency(latency.itl_p50, latency.itl_p95),
        harvest=_harvest_view(control.harvest),
        obstacle=control.harvest.obstacle,
        stored=puller.stored,
        times=control.caller_times,
    )


def _harvest_view(harvest: HarvestControl) -> HarvestView | None:
    r = harvest.report
    if r is None:
        return None
    return HarvestView(harvest.active, r.tripped, r.batch_frozen, r.evictions, r.faults, r.plan_seconds)


def _latency(p50_ms: float, p95_ms: float) -> Latency | None:
    return None if math.isnan(p50_ms) else Latency(p50_ms / 1000, p95_ms / 1000)


def exposition(views: Sequence[View], gpus: Sequence[Gpu] = ()) -> bytes:
    """The state of a process's workers and of the GPUs, as Prometheus text."""
    registry = part_metrics.new_registry("gpu-worker")
    registry.register(_Collector(views, gpus))
    registry.register(SpanCounts())
    return generate_latest(registry)


class _Collector(Collector):
    def __init__(self, views: Sequence[View], gpus: Sequence[Gpu]) -> None:
        self._views = views
        self._gpus = gpus

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for view in self._views:
            for family in _families(view):
                whole = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                whole.samples += [
                    each._replace(labels={"engine": view.engine, **each.labels}) for each in family.samples
                ]
        yield from families.values()
        yield from _gpu_families(self._gpus)


def _families(view: View) -> Iterator[Metric]:
    """What is known of one engine. Each sample gets the label `engine`."""
    info = {"model": view.model, "mode": view.mode}
    yield InfoMetricFamily(f"{PREFIX}engine", "an engine that this process controls", value=info)
    yield from _gate(view)
    yield from _work(view)
    yield from _stored(view.stored)
    yield from _seconds(view)
    yield from _latencies(view)
    yield from _harvest(view.harvest)
    yield _obstacle(view)
    if view.times is not None:
        yield from view.times.registry.collect()


def _gate(view: View) -> Iterator[Metric]:
    yield _gauge("allowance_requests", "batch requests that may be in flight", view.allowance)
    yield _gauge("allowance_tokens", "tokens of context that batch requests may hold", view.tokens_allowed)
    yield _gauge("in_flight_requests", "batch requests in the engine", view.in_flight)
    names = dict.fromkeys((*REASONS, view.reason, *view.changes))
    reason = GaugeMetricFamily(f"{PREFIX}reason", "1 for the reason that holds now", labels=["reason"])
    changes = CounterMetricFamily(f"{PREFIX}reason_changes", "how often this reason began", labels=["reason"])
    for name in names:
        reason.add_metric([name], float(name == view.reason))
        changes.add_metric([name], view.changes.get(name, 0))
    yield reason
    yield changes


def _work(view: View) -> Iterator[Metric]:
    yield _counter("yields", "batch requests taken out of the engine for synchronous ones", view.yields)
    yield _counter("resumes", "yielded requests that went on from their tokens", view.resumes)
    yield _counter("wasted_tokens", "generated tokens of batch requests that were lost", view.wasted_tokens)
    meaning = "tokens that yielded requests found in the prefix cache when they went on"
    yield _counter("resumed_cached_tokens", meaning, view.resumed_cached_tokens)
    yield _counter("probes", "one-token requests sent while failed telemetry keeps the gate closed", view.probes)
    meaning = "decisions missing in the log because the database could not be reached"
    yield _counter("dropped_decisions", meaning, view.dropped_decisions)


def _stored(stored: UsageCounts) -> Iterator[Metric]:
    results = CounterMetricFamily(
        f"{PREFIX}results",
        "results that were stored: ok or failed; retried: after more than one attempt",
        labels=["outcome", "retried"],
    )
    again, failed = stored.retried, stored.requests - stored.ok
    results.add_metric(["ok", "yes"], stored.retried_ok)
    results.add_metric(["ok", "no"], stored.ok - stored.retried_ok)
    results.add_metric(["failed", "yes"], again - stored.retried_ok)
    results.add_metric(["failed", "no"], failed - (again - stored.retried_ok))
    yield results
    tokens = CounterMetricFamily(
        f"{PREFIX}harvested_tokens", "tokens of stored results: prompt (computed), cached, output", labels=["kind"]
    )
    tokens.add_metric(["prompt"], stored.prompt - stored.cached)
    tokens.add_metric(["cached"], stored.cached)
    tokens.add_metric(["output"], stored.output)
    yield tokens
    meaning = "time in which the engine had batch work, counted when a chunk ends"
    yield _counter("batch_engine_seconds", meaning, stored.engine_ms / 1000)


def _seconds(view: View) -> Iterator[Metric]:
    yield _gauge("telemetry_age_seconds", "time since the last scrape of the engine", view.telemetry_age)
    meaning = (
        "prediction of a step: of the synchronous work alone or, if our scheduler plans the steps, of the planned step"
    )
    yield _gauge("predicted_step_seconds", meaning, view.predicted_step)
    yield _gauge("measured_step_seconds", "engine step with batch work, as measured", view.measured_step)


def _latencies(view: View) -> Iterator[Metric]:
    for name, meaning, latency in (
        ("sync_ttft_seconds", "time to first token of recent synchronous requests", view.ttft),
        ("sync_itl_seconds", "time between tokens of recent synchronous requests", view.itl),
    ):
        family = Metric(PREFIX + name, meaning, "summary")
        if latency is not None:
            family.add_sample(family.name, {"quantile": "0.5"}, latency.p50)
            family.add_sample(family.name, {"quantile": "0.95"}, latency.p95)
        yield family


def _harvest(harvest: HarvestView | None) -> Iterator[Metric]:
    yield _gauge(
        "harvest_active", "1 while the scheduler plug-in plans the steps", float(bool(harvest and harvest.active))
    )
    known = harvest is not None
    h = harvest or HarvestView(False, False, 0, 0, 0, 0)
    meaning = "1 after a fault in the plug-in, until the engine restarts"
    yield _gauge("harvest_tripped", meaning, float(h.tripped) if known else None)
    meaning = "batch requests that are left out of steps and keep their KV cache"
    yield _gauge("harvest_frozen_requests", meaning, h.frozen if known else None)
    meaning = "batch requests that gave slot and KV cache back"
    yield _counter("harvest_evictions", meaning, h.evictions if known else None)
    yield _counter("harvest_faults", "exceptions in the plug-in", h.faults if known else None)
    yield _gauge("harvest_plan_seconds", "time that the last step's plan took", h.plan_seconds if known else None)


def _obstacle(view: View) -> Metric:
    meaning = "1 for the reason why the plug-in of the engine, which was asked for, does not rule"
    family = GaugeMetricFamily(PREFIX + "harvest_obstacle", meaning, labels=["code"])
    for code in sorted(page_problems.CODES):
        family.add_metric([code], float(code == view.obstacle))
    return family


def _gpu_families(gpus: Sequence[Gpu]) -> Iterator[Metric]:
    for name, meaning, values in (
        ("gpu_utilization", "share of time in which some kernel ran", [gpu.utilization for gpu in gpus]),
        ("gpu_memory_used_bytes", "GPU memory in use by all processes", [gpu.memory_used for gpu in gpus]),
        ("gpu_memory_total_bytes", "total GPU memory", [gpu.memory_total for gpu in gpus]),
        ("gpu_power_watts", "power draw of the GPU", [gpu.power_watts for gpu in gpus]),
    ):
        family = GaugeMetricFamily(PREFIX + name, meaning, labels=["gpu", "name"])
        for gpu, value in zip(gpus, values, strict=True):
            if value is not None:
                family.add_metric([gpu.uuid, gpu.name], value)
        yield family


def _gauge(name: str, meaning: str, value: float | None) -> GaugeMetricFamily:
    family = GaugeMetricFamily(PREFIX + name, meaning)
    if value is not None:
        family.add_metric([], value)
    return family


def _counter(name: str, meaning: str, value: float | None) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, meaning, value=value)
