"""The control loop: what is known of the engine, into the controller, and its decision to the puller.

sampler, meter     /metrics, and what its counters say of the steps
arrivals           synchronous requests that a gateway announces; each one wakes the loop
harvest            a managed engine's own scheduler, which then rules in place of the controller (L2)
probe              a one-token request while telemetry is not believed, so that a closed gate can heal
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import psycopg
import structlog

from app import clock
from app.engines.requests import probe_request
from app.headroom.arrivals import Arrivals
from app.headroom.controller import Decision, State, decide, urgency
from app.headroom.decision_log import AllowanceChange, DecisionLog, LoggedDecision
from app.headroom.gate_rules import CLOSED_BY_FAILURE, HeadroomLimits, Reason
from app.headroom.gpu import Gpu
from app.headroom.sampler import Sampler
from app.headroom.selftest import prove
from app.headroom.signals import BatchLoad, Scrape, Signals
from app.headroom.silence import Pulse
from app.headroom.step_meter import StepMeter
from app.settings import Settings
from workers.engine.step_stats_receiver import StepReceiver, StepStats
from workers.gpu.harvest_control import HarvestControl
from workers.gpu.item_runner import Caller
from workers.gpu.metrics import Latency, View
from workers.gpu.puller import Puller

DEADLINE_SECONDS = 5.0
_BEATS = 3  # ticks further apart than so many times the pause between them: the process did not run

log = structlog.get_logger()


class Controlled(Protocol):
    """What the controller knows of an engine beforehand."""

    @property
    def url(self) -> str:
        """Where it answers."""

    @property
    def slots(self) -> int:
        """Requests it runs at once."""

    @property
    def harvest(self) -> HarvestControl:
        """The control page of its scheduler, if we share it."""


class ControlLoop:
    """One engine's controller. `decision` is what holds now, `changes` how often each reason began."""

    def __init__(
        self,
        settings: Settings,
        engine: "Controlled",
        caller: Caller,
        puller: Puller,
        journal: DecisionLog,
        serving: Callable[[], bool],
    ) -> None:
        self.arrivals = Arrivals(settings.request_timeout_seconds)
        self.pulse = Pulse(_BEATS * settings.control_seconds)
        self.meter = StepMeter()
        self.changes: Counter[str] = Counter()
        self.probes = 0
        self.urgency = 0.0
        self.sampler = Sampler(
            engine.url,
            lambda: len(caller.calling),
            period_seconds=settings.sample_seconds,
            timeout_seconds=settings.stale_seconds,
            on_scrape=self._measure,
            plausible=self.meter.longest,
            stalls=self.pulse.stalls,
        )
        self._settings = settings
        self._caller = caller
        self._puller = puller
        self._harvest = engine.harvest
        self._serving = serving
        self._journal = journal
        self._limits = HeadroomLimits.of(settings, engine.slots)
        self._computed = 0
        self._wake = asyncio.Event()
        log.debug("headroom.proven", **{closing.signal: closing.closes_at for closing in prove(self._limits)})
        self.state, self.decision = decide(State(), self.signals(), self._limits)
        self._told = LoggedDecision(self.decision)
        self._counted = self.decision.reason

    def on_arrival(self) -> None:
        """A synchronous request was announced: decide now, not at the next tick."""
        self._wake.set()

    async def run(self) -> None:
        """Tick until cancelled."""
        async with self._steps_told(), asyncio.TaskGroup() as group:
            group.create_task(self.sampler.run())
            group.create_task(self._heal())
            group.create_task(self._tick())
            group.create_task(self._watch_deadlines())

    @asynccontextmanager
    async def _steps_told(self) -> AsyncIterator[None]:
        """Hear of each step of a managed engine, if it can be heard; the scrapes go on in any case."""
        receiver = None
        try:
            if self._harvest.socket is not None:
                receiver = StepReceiver(self._harvest.socket, self._step)
                await receiver.open()
        except OSError as error:
            log.warning("headroom.deaf", socket=str(self._harvest.socket), error=str(error))
        try:
            yield
        finally:
            if receiver is not None:
                receiver.close()

    def _step(self, step: StepStats) -> None:
        gauges = self.sampler.latest.gauges if self.sampler.latest else None
        context = step.kv_usage * gauges.kv_capacity if gauges else 0.0
        before, self._computed = self._computed, self._caller.ledger.load().computed_tokens
        tokens = step.prompt_tokens + step.generation_tokens
        self.meter.told(step.at, tokens, context, bool(step.running + step.waiting), self._computed - before)

    def signals(self) -> Signals:
        """What is known now."""
        now, batch, scrape = clock.monotonic(), self._caller.ledger.load(), self.sampler.latest
        sync = self.arrivals.load(now)
        others = self._others(scrape)
        return Signals(
            now=now,
            scrape=scrape,
            batch=batch,
            sync=sync,
            steps=self.meter.now(scrape, batch, max(others, sync.open - sync.awaiting)),
            urgency=self.urgency,
            stalls=self.pulse.stalls(now),
            still_seconds=self.sampler.still_seconds,
        )

    @property
    def sync_open(self) -> int:
        """Synchronous requests that gateways have announced and not yet ended."""
        return self.arrivals.load(clock.monotonic()).open

    @property
    def inside(self) -> bool:
        """Whether the engine's own scheduler shares each step between synchronous and batch requests now."""
        return not self._caller.streams

    @property
    def detail(self) -> str | None:
        """What is wrong with the telemetry, while that is why the gate is closed."""
        failed = self.decision.reason in CLOSED_BY_FAILURE and not self.sampler.frozen
        return self.sampler.trouble or None if failed else None

    @property
    def calm(self) -> bool:
        """Whether the last look found no request but ours in the engine."""
        scrape = self.sampler.latest
        return scrape is not None and scrape.gauges is not None and self._others(scrape) == 0

    @staticmethod
    def _others(scrape: Scrape | None) -> int:
        gauges = scrape.gauges if scrape else None
        return 0 if scrape is None or gauges is None else max(0, gauges.running + gauges.waiting - scrape.own)

    def _measure(self, scrape: Scrape) -> None:
        self.meter.observe(scrape, self._caller.ledger.load())
        if scrape.gauges is not None:
            self.arrivals.observed(scrape.sampled_at, scrape.gauges.waiting, self._others(scrape))

    async def _tick(self) -> None:
        while True:
            self._wake.clear()
            try:
                self._decide()
                self.pulse.beat(clock.monotonic())
            except Exception:  # whatever is wrong with the law, synchronous callers must not feel it
                log.exception("headroom.broken")
                self.decision = Decision(0, Reason.CLOSED_UNKNOWN, "controller", 0, 1)
                self._puller.allow(0)
                self._tell("l1", BatchLoad(), None)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.control_seconds):
                    await self._wake.wait()

    def _decide(self) -> None:
        signals, before = self.signals(), self.state
        self._harvest.command(signals.urgency)
        self.state, self.decision = decide(before, signals, self._limits)
        layer = "l1"
        ruling = None if self._limits.static else self._harvest.decide(signals, self._limits)
        if ruling is not None and self.decision.reason not in CLOSED_BY_FAILURE:
            self.decision, layer = ruling, "l2"
        self._caller.streams = ruling is None
        decision, serving = self.decision, self._serving()
        allowance = decision.allowance if serving else 0
        self._puller.allow(allowance, prefill_tokens=decision.prefill_tokens, surplus=decision.surplus, calm=self.calm)
        # Of an engine that gets nothing whatever its headroom, no opening is told before it is used again.
        if serving or decision.reason in CLOSED_BY_FAILURE:
            self._tell(layer, signals.batch, signals.scrape)

    def _tell(self, layer: str, batch: BatchLoad, scrape: Scrape | None) -> None:
        """Count a new reason, and log the decision if it is worth a row."""
        d = self.decision
        if d.reason is not self._counted:
            self._counted = d.reason
            self.changes[d.reason.value] += 1
        if (was := self._told.change(clock.monotonic(), d)) is None:
            return
        said: dict[str, object] = {"signal": d.signal, "value": round(d.value, 3), "threshold": round(d.threshold, 3)}
        if self.detail:
            said["detail"] = self.detail
        failed = {d.reason, was.reason} & set(CLOSED_BY_FAILURE)
        note = log.info if failed else log.debug  # the others come many times a minute, and are in the decision log
        note("headroom.decided", allowance=d.allowance, reason=d.reason.value, was=was.reason.value, **said)
        credited = max(0, batch.requests - scrape.own) if scrape else 0
        self._journal.add(
            AllowanceChange(
                layer="l2" if layer == "l2" else "l1",
                was_allowance=was.allowance,
                allowance=d.allowance,
                was_reason=was.reason.value,
                reason=d.reason.value,
                signal=d.signal,
                value=float(d.value),
                threshold=float(d.threshold),
                in_flight=batch.requests,
                credited=credited,
                detail=self.detail,
            )
        )

    async def _watch_deadlines(self) -> None:
        while True:
            await asyncio.sleep(DEADLINE_SECONDS)
            try:
                self.urgency = urgency(await self._puller.slack())
            except psycopg.OperationalError as error:
                log.warning("database.unavailable", verb="slack", error=str(error).strip())

    async def _heal(self) -> None:
        """While the gate is closed by failure, let one token be computed now and then: telemetry that moves reopens it."""
        while True:
            await asyncio.sleep(self._settings.probe_seconds)
            failed = self.decision.reason in CLOSED_BY_FAILURE
            if failed and self._serving() and not self._caller.calling:
                self.probes += 1
                log.info("headroom.probe", reason=self.decision.reason.value)
                await self._caller.probe(probe_request(self._caller.target))

    def view(self, *, engine: str, model: str, mode: str, fault: str | None, gpus: Sequence[Gpu]) -> View:
        """Everything that the worker's `/metrics` tells."""
        signals, decision, report = self.signals(), self.decision, self._harvest.report
        steps, latency = signals.steps, self.arrivals.latency()
        return View(
            engine=engine,
            model=model,
            mode=mode,
            reason=fault or decision.reason.value,
            allowance=0 if fault else decision.allowance,
            tokens_allowed=decision.tokens,
            in_flight=signals.batch.requests,
            changes=self.changes,
            yields=self._puller.yields,
            resumes=self._caller.resumes,
            wasted_tokens=self._puller.wasted_tokens,
            resumed_cached_tokens=self._caller.resumed_cached_tokens,
            probes=self.probes,
            dropped_decisions=self._journal.dropped,
            telemetry_age=signals.now - signals.scrape.sampled_at if signals.scrape else None,
            predicted_step=report.predicted_seconds if report else steps.alone if steps else None,
            measured_step=report.step_seconds if report else steps.measured if steps else None,
            ttft=_latency(latency.ttft_p50, latency.ttft_p95),
            itl=_latency(latency.itl_p50, latency.itl_p95),
            harvest=self._harvest.metrics(),
            gpus=gpus,
        )


def _latency(p50_ms: float, p95_ms: float) -> Latency | None:
    return None if math.isnan(p50_ms) else Latency(p50_ms / 1000, p95_ms / 1000)
