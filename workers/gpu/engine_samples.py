"""Looks at the engine once a second, and stores what it did every ten seconds (`app.headroom.samples`)."""

import asyncio
from collections import deque
from collections.abc import Callable

import structlog

from app import clock
from app.causes import cause
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.headroom import samples
from app.headroom.samples import SAMPLE_SECONDS, Counters, EngineSample, Look, SampleBuilder
from workers.gpu.control_loop import ControlLoop
from workers.gpu.puller import Puller
from workers.gpu.requests_in_engine import RequestsInEngine

LOOK_SECONDS = 1.0
KEPT = 360  # samples while the database is away: an hour
_SAMPLES_COMPARED = 30

log = structlog.get_logger()


class EngineSamples:
    """The samples of one worker's engine. Set `engine_id` once the engine is known. `obstacle`: why it gets nothing."""

    def __init__(
        self,
        database: Database,
        control: ControlLoop,
        puller: Puller,
        ledger: RequestsInEngine,
        obstacle: Callable[[], str | None],
    ) -> None:
        self.engine_id: int | None = None
        self._database = database
        self._control = control
        self._puller = puller
        self._ledger = ledger
        self._obstacle = obstacle
        self._builder = SampleBuilder()
        self._rows: deque[tuple[float, EngineSample]] = deque(maxlen=KEPT)
        self._others = _OtherTokens()

    async def run(self) -> None:
        """Look and store until cancelled."""
        due = clock.monotonic() + SAMPLE_SECONDS
        while True:
            now = clock.monotonic()
            self._builder.look(now, self._look())
            if now >= due:
                due = now + SAMPLE_SECONDS
                if (sample := self._builder.take(self._counters())) is not None:
                    self._rows.append((now, sample))
                await self._store()
            await asyncio.sleep(LOOK_SECONDS)

    async def _store(self) -> None:
        """Store what was collected while we control an engine. What cannot be stored is kept for the next time."""
        if self.engine_id is None:
            self._rows.clear()
            return
        try:
            async with self._database.relaxed() as conn:
                while self._rows:
                    ended, sample = self._rows[0]
                    await samples.record(conn, self.engine_id, sample, ended)
                    self._rows.popleft()
        except (TimeoutError, *TRANSIENT) as error:
            log.debug("database.unavailable", verb="sample", error=cause(error))

    def _look(self) -> Look:
        control, fault = self._control, self._obstacle()
        signals, decision, report = control.signals(), control.decision, control.harvest.report
        scrape, steps = signals.scrape, signals.steps
        gauges = scrape.gauges if scrape else None
        inside = report is not None and control.harvest.active
        sync = scrape.others if scrape else 0
        self._others.see(bool(sync or (signals.sync and signals.sync.open)))
        follows = report is not None and inside and (report.sync_running > 0 or not sync)  # a long step may end later
        return Look(
            reason=fault or decision.reason.value,
            allowance=0 if fault else decision.allowance,
            batch=signals.batch.requests,
            sync=sync,
            sync_waiting=scrape.others_waiting if scrape else 0,
            frozen=report.batch_frozen if report and inside else 0,
            kv_usage=gauges.kv_usage if gauges else None,
            step_ms=_ms(report.step_seconds if report and inside else steps.measured if steps else None),
            predicted_ms=_ms(report.predicted_seconds if report and inside else steps.alone if steps else None),
            allowed_ms=_ms(report.allowed_seconds if report and follows else None),
        )

    def _counters(self) -> Counters:
        """The scheduler's own counts if it makes them: it knows whose tokens every step has. Answers are not streamed then, so
        that we would count theirs only at the end.
        """
        report, scrape, yields = self._control.harvest.report, self._control.sampler.latest, self._puller.yields
        if report is not None and report.supported:
            return Counters(True, report.batch_tokens, report.sync_tokens, yields, report.evictions)
        batch = self._ledger.load().computed_tokens
        gauges = scrape.gauges if scrape else None
        everything = gauges.prompt_tokens + gauges.generation_tokens if gauges else None
        return Counters(False, batch, self._others.count(everything, batch), yields)


class _OtherTokens:
    """Counts the tokens that an engine has computed for others: all that its page counts, without ours.

    We count a token when it comes, and the engine's page has it sooner or later. So what is left goes up and down a little; only
    what is more than ever in the last samples counts. What the engine has computed for requests of ours that were aborted or lost
    is never counted by us, so what is left is others' only if some were there since the sample before the last.
    """

    def __init__(self) -> None:
        self._engine = 0
        self._left = deque[int](maxlen=_SAMPLES_COMPARED)
        self._count = 0
        self._there = deque([False, False], maxlen=2)  # in the sample before, and since

    def see(self, others: bool) -> None:
        """Whether there are requests of others now."""
        self._there[-1] |= others

    def count(self, everything: int | None, ours: int) -> int:
        """The count. An engine that has started again has counted from 0. None: the page cannot be read."""
        if everything is None:
            return self._count
        if everything < self._engine:
            self._left.clear()
        self._engine = everything
        if self._left and any(self._there):
            self._count += max(0, everything - ours - max(self._left))
        self._left.append(everything - ours)
        self._there.append(False)
        return self._count


def _ms(seconds: float | None) -> float | None:
    return seconds * 1000 if seconds else None
