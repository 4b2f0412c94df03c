"""The control loop: it gives the controller its signals, and gives the controller's decision to the puller.

sampler, meter     the engine's /metrics, and the step times that its counters show
streams            the pace of our own streams, if the engine counts no steps
arrivals           synchronous requests that a gateway announces; each one wakes the loop
harvest            the engine's own scheduler if it is ours, which decides in place of the controller (L2)
probe              a one-token request while the telemetry is not trusted, so that a closed gate can open again
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import structlog

from app import clock
from app.causes import cause
from app.engines import adoption
from app.engines.adoption import EngineProblem
from app.engines.page_problems import problem_of
from app.engines.requests import probe_request
from app.headroom.arrivals import Arrivals
from app.headroom.controller import Decision, State, decide, urgency
from app.headroom.decision_log import AllowanceChange, DecisionLog, LoggedDecision
from app.headroom.gate_rules import BLIND_CAP, CLOSED_BY_FAILURE, HeadroomLimits, Reason
from app.headroom.sampler import Sampler
from app.headroom.selftest import prove
from app.headroom.signals import BatchLoad, Scrape, Signals
from app.headroom.silence_limit import Pulse
from app.headroom.slot_search import SlotSearch
from app.headroom.step_meter import StepMeter
from app.settings import Settings
from workers.engine.step_stats_receiver import StepReceiver, StepStats
from workers.gpu.caller_times import CallerTimes
from workers.gpu.harvest_control import HarvestControl
from workers.gpu.item_runner import ItemRunner
from workers.gpu.puller import Puller
from workers.gpu.rest import Rest
from workers.gpu.stream_watch import StreamWatch

_BEATS = 3  # if two ticks are this many pauses apart, the process did not run

log = structlog.get_logger()


class Controlled(Protocol):
    """The facts of an engine that do not change."""

    @property
    def url(self) -> str:
        """Its address."""

    @property
    def slots(self) -> int:
        """Requests that it runs at once; if that is not known, what callers may take for granted."""

    @property
    def slots_known(self) -> bool:
        """Whether `slots` is a setting or the engine's own word."""

    @property
    def slots_given(self) -> bool:
        """Whether `slots` is a setting that the engine need not share."""

    @property
    def harvest(self) -> HarvestControl:
        """The control pages of its scheduler, if it runs ours."""

    def seen(self, slots: int | None) -> None:
        """Take the number of slots that it reports; None: it reports none."""


class ControlLoop:
    """One engine's controller. `decision`: the present one. `changes`: how often each reason began."""

    def __init__(
        self,
        settings: Settings,
        engine: "Controlled",
        runner: ItemRunner,
        puller: Puller,
        journal: DecisionLog,
        serving: Callable[[], bool],
        headers: Mapping[str, str],
        rest: Rest | None = None,
    ) -> None:
        self._rest = rest or Rest()
        self.caller_times = CallerTimes(runner.ledger.busy_since)
        self.arrivals = Arrivals(settings.request_timeout_seconds, self.caller_times.observe)
        self.pulse = Pulse(_BEATS * settings.control_seconds)
        self.meter = StepMeter()
        self.changes: Counter[str] = Counter()
        self.probes = 0
        self.urgency = 0.0
        self.sampler = Sampler(
            engine.url,
            lambda: len(runner.calling),
            left=lambda: runner.ledger.left,
            period_seconds=settings.sample_seconds,
            timeout_seconds=settings.stale_seconds,
            headers=headers,
            on_scrape=self._measure,
            plausible=self.meter.longest,
            stalls=self.pulse.stalls,
            terms=lambda: runner.target.terms,
            announced=lambda: self.sync_open,
            pause=self._rest.pause,
            extra=lambda seconds: self._rest.length(seconds) - seconds,
        )
        self._streams = StreamWatch(runner, self.arrivals, self.meter)
        self._engine = engine
        self._settings = settings
        self._runner = runner
        self._puller = puller
        self.harvest = engine.harvest
        self._serving = serving
        self._journal = journal
        self.search = self._new_search()
        self._limits = self._new_limits()
        self._computed = 0
        self._wake = asyncio.Event()
        self._counted_tokens = (0, 0)
        self._rest.on_end(self._wake.set)
        self._rest.on_end(self.sampler.hurry)
        known, blind = engine.slots_known, self._may_be_blind
        proven = prove(HeadroomLimits.of(settings, engine.slots, blind=blind, slots_known=known))
        log.debug("headroom.proven", **{closing.signal: closing.closes_at for closing in proven})
        self.state, self.decision = decide(State(), self.signals(), self._limits)
        self._logged = LoggedDecision(self.decision)
        self._counted = self.decision.reason

    def on_slack(self, slack: float | None) -> None:
        """Take over the slack of the pool: how pressing its deadlines are. None: none is, or it is not known."""
        self.urgency = urgency(slack)

    def on_arrival(self) -> None:
        """A synchronous request was announced: decide now, not at the next tick."""
        self._rest.stir()
        self._wake.set()

    async def run(self) -> None:
        """Tick until cancelled."""
        async with self._receive_steps(), asyncio.TaskGroup() as group:
            group.create_task(self.sampler.run())
            group.create_task(self._heal())
            group.create_task(self._tick())

    @asynccontextmanager
    async def _receive_steps(self) -> AsyncIterator[None]:
        """Receive each step of a managed engine. If that fails, the scrapes are enough."""
        receiver = None
        try:
            if self.harvest.socket is not None:
                receiver = StepReceiver(self.harvest.socket, self._step)
                await receiver.open()
        except OSError as error:
            log.warning("headroom.deaf", socket=str(self.harvest.socket), error=cause(error))
        try:
            yield
        finally:
            if receiver is not None:
                receiver.close()

    def _step(self, step: StepStats) -> None:
        gauges = self.sampler.latest.gauges if self.sampler.latest else None
        context = step.kv_usage * gauges.kv_capacity if gauges else 0.0
        before, self._computed = self._computed, self._runner.ledger.load().computed_tokens
        tokens = step.prompt_tokens + step.generation_tokens
        self.meter.observe_step(step.at, tokens, context, bool(step.running + step.waiting), self._computed - before)

    def signals(self) -> Signals:
        """Everything that is known now."""
        now, batch, scrape = clock.monotonic(), self._runner.ledger.load(), self.sampler.latest
        sync = self.arrivals.load(now)
        others = scrape.others if scrape is not None else 0
        return Signals(
            now=now,
            scrape=scrape,
            batch=batch,
            sync=sync,
            steps=self._streams.step_time(self.meter.now(scrape, batch, max(others, sync.open - sync.awaiting))),
            urgency=self.urgency,
            stalls=self.pulse.stalls(now),
            still_seconds=self.sampler.still_seconds,
            first_token=self._streams.first_token(scrape),
        )

    @property
    def _may_be_blind(self) -> bool:
        return self._runner.target.terms.dialect.load != "needed"

    def _present_limits(self) -> HeadroomLimits:
        """The limits of the engine as it was last seen: it may be of another kind or size than at our start."""
        same = (self._limits.slots, self._limits.blind) == (self.slots, self._may_be_blind)
        return self._limits if same else self._new_limits()

    def _new_search(self) -> SlotSearch:
        return SlotSearch.of(self._engine.slots) if self._engine.slots_given else SlotSearch()

    def _new_limits(self) -> HeadroomLimits:
        known = self._engine.slots_known
        return HeadroomLimits.of(self._settings, self.slots, blind=self._may_be_blind, slots_known=known)

    @property
    def slots(self) -> int:
        """Requests that may be in the engine. Of one that shows no load no more is known than the cap of batch work."""
        if self._engine.slots_known and not self._engine.slots_given:
            return self._engine.slots
        unseen = self._may_be_blind and not self._engine.slots_known and not self.search.found
        return BLIND_CAP + self._settings.sync_reserve_slots if unseen else self.search.slots

    @property
    def problems(self) -> tuple[EngineProblem, ...]:
        """What the engine does not say of its slots, where no cap of the settings decides."""
        if self._settings.batch_max_in_flight:
            return ()
        if self._engine.slots_known:
            wrong = self._engine.slots_given and self.search.contradicts
            return (adoption.slots_wrong(self._engine.slots, self.search.found),) if wrong else ()
        if self.blind:
            return (adoption.slots_unseen(BLIND_CAP),)
        return (adoption.slots_unknown(self.search.found if self.search.sure else 0),)

    @property
    def sync_open(self) -> int:
        """Synchronous requests that gateways have announced and that have not ended."""
        return self.arrivals.load(clock.monotonic()).open

    @property
    def inside(self) -> bool:
        """Whether the engine's own scheduler now shares each step between synchronous and batch requests."""
        return not self._runner.streams

    @property
    def detail(self) -> str | None:
        """The error of the telemetry while it closes the gate, or why the engine's own scheduler does not rule."""
        failed = self.decision.reason in CLOSED_BY_FAILURE and not self.sampler.frozen
        if failed and self.sampler.trouble:
            return self.sampler.trouble
        return None if (obstacle := self.harvest.obstacle) is None else problem_of(obstacle).message

    @property
    def blind(self) -> bool:
        """Whether the engine shows no load, so that only the cap and the latency of streams decide."""
        return self.sampler.latest is not None and self.sampler.latest.blind

    @property
    def sync_idle(self) -> bool:
        """Whether the last scrape shows no request of others in the engine."""
        scrape = self.sampler.latest
        return scrape is not None and scrape.gauges is not None and scrape.others == 0

    def _measure(self, scrape: Scrape) -> None:
        if scrape.gauges is not None:
            before, self._counted_tokens = (
                self._counted_tokens,
                (scrape.gauges.prompt_tokens, scrape.gauges.generation_tokens),
            )
            if self._counted_tokens < before:  # counted anew: another process, which may have other slots
                self.search = self._new_search()
            if scrape.others or self._counted_tokens != before:
                self._rest.stir()
        if self._runner.target.terms.dialect.counts_steps:
            self.meter.observe(scrape, self._runner.ledger.load())
        if scrape.gauges is not None and not scrape.blind:
            self.arrivals.observed(scrape.sampled_at, scrape.gauges.waiting, scrape.beyond)
            if not self.inside:  # else ours may wait in it, frozen
                self.search = self.search.seen(scrape, reserve=self._limits.reserve, kv_ceiling=self._limits.kv_ceiling)

    async def _tick(self) -> None:
        while True:
            self._wake.clear()
            pause = self._settings.control_seconds
            try:
                self._decide()
                pause = self._rest.length(pause)
                self.pulse.beat(clock.monotonic(), pause - self._settings.control_seconds)
            except Exception:  # an error of ours must not harm synchronous requests
                log.exception("headroom.broken")
                self.decision = Decision(0, Reason.CLOSED_UNKNOWN, "controller", 0, 1)
                self._puller.allow(0)
                self._log_change("l1", BatchLoad(), None)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    def _decide(self) -> None:
        self._streams.look()
        self._limits = self._present_limits()
        signals, before = self.signals(), self.state
        self.harvest.command(signals.urgency)
        self._engine.seen(self.harvest.slots)
        self.state, self.decision = decide(before, signals, self._limits)
        layer = "l1"
        inside = None if self._limits.static else self.harvest.decide(signals, self._limits)
        if inside is not None and self.decision.reason not in CLOSED_BY_FAILURE:
            self.decision, layer = inside, "l2"
        self._runner.streams = inside is None
        decision, serving = self.decision, self._serving()
        if not serving or decision.reason in CLOSED_BY_FAILURE or signals.batch.requests or self.sync_open:
            self._rest.stir()
        allowance = decision.allowance if serving else 0
        self._puller.allow(
            allowance,
            prefill_tokens=decision.prefill_tokens,
            surplus=decision.surplus,
            all_yield=decision.all_yield,
            sync_idle=self.sync_idle,
        )
        # While the engine may get nothing, an open gate is not logged.
        if serving or decision.reason in CLOSED_BY_FAILURE:
            self._log_change(layer, signals.batch, signals.scrape)

    def _log_change(self, layer: str, batch: BatchLoad, scrape: Scrape | None) -> None:
        """Count a new reason, and add the decision to the log if it changes enough."""
        d = self.decision
        if d.reason is not self._counted:
            self._counted = d.reason
            self.changes[d.reason.value] += 1
        if (was := self._logged.change(clock.monotonic(), d, self.detail)) is None:
            return
        comparison: dict[str, object] = {
            "signal": d.signal,
            "value": round(d.value, 3),
            "threshold": round(d.threshold, 3),
        }
        if self.detail:
            comparison["detail"] = self.detail
        failed = {d.reason, was.reason} & set(CLOSED_BY_FAILURE)
        write = log.info if failed else log.debug  # others come many times a minute, and are in the decision log
        write("headroom.decided", allowance=d.allowance, reason=d.reason.value, was=was.reason.value, **comparison)
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

    async def _heal(self) -> None:
        """While failed telemetry keeps the gate closed, send a one-token request now and then. New counters open the gate."""
        while True:
            await asyncio.sleep(self._settings.probe_seconds)
            failed = self.decision.reason in CLOSED_BY_FAILURE
            if failed and self._serving() and not self._runner.calling:
                self.probes += 1
                log.info("headroom.probe", reason=self.decision.reason.value)
                await self._runner.nudge(probe_request(self._runner.target))
