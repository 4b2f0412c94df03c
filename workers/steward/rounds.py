"""The steward's rounds: what the queue needs each second. Every step is its own transaction and can be repeated safely.

What may take longer is a duty: a round only asks for those that are due (`app.duties`).
"""

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import structlog

from app import __version__
from app.admission.control import AdmissionControl
from app.batches import batch_spans, queued_sessions
from app.batches import lifecycle as batches
from app.batches.phases import PhaseLog
from app.batches.progress_events import ProgressEvents
from app.budgets.queued import Steward
from app.causes import cause
from app.changes import service as changes
from app.changes.kinds import ChangeKind
from app.clock import monotonic
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT, away
from app.duties import standing as duties
from app.duties.schedule import ACCOUNTS, RETRY_SECONDS
from app.pipelines import parked
from app.pipelines.lifecycle import tell_stages
from app.queue import (
    chunk_sweeps,
    expiry,
    order_deltas,
    pace,
    pace_log,
    partitions,
    reaping,
    running_batches,
    settling,
)
from app.queue.lost_workers import WorkerWatch
from app.queue.running_batches import BatchProgress
from app.settings import Settings
from app.tenants import service as tenants
from app.webhooks import due_sweep, endpoint_removal, endpoint_state
from workers.steward.batch_log import BatchLog, LogLine
from workers.steward.beside import beside
from workers.steward.feeder import PipelineKeeper
from workers.steward.metrics import HandoffCounts, Metrics
from workers.steward.pool_status_writer import PoolStatusWriter
from workers.steward.rest import Pace
from workers.steward.sealing import AuditLog
from workers.steward.turns import Turns
from workers.steward.worker_calls import WorkerCalls

PROGRESS_SECONDS = 1.0
CORRECT_HELD_SECONDS = 5.0
PARTITION_SECONDS = 600.0
PHASE_SECONDS = 5.0
REMOVE_SECONDS = 1.0
PARKED_SECONDS = 1.0
DUTIES_SECONDS = 1.0
LOOKS_IN_GAP = 5  # so that a few late ones are no outage
log = structlog.get_logger("steward")


class HintPublisher(due_sweep.HintPublisher, Protocol):
    """Publishes hints on the broker: `app.tasks.producer.Hints`."""

    async def duties(self, duties: Sequence[str], seconds: float) -> bool:
        """Publish one hint for each duty, good for so many seconds. False: the broker did not take them."""


def _log(events: Iterable[LogLine]) -> None:
    for name, facts in events:
        log.info(name, **facts)


class Rounds:
    """The steward's work on one database."""

    def __init__(self, database: Database, hints: HintPublisher, settings: Settings) -> None:
        self._database = database
        self._hints = hints
        self._settings = settings
        self._progress_events = ProgressEvents(settings.webhook_progress_seconds)
        self._periodic: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (PROGRESS_SECONDS, self._write_progress),
            (CORRECT_HELD_SECONDS, self._correct_held_deliveries),
            (REMOVE_SECONDS, self._remove_endpoints),
            (PARTITION_SECONDS, self._keep_partitions),
            (pace.NOTE_SECONDS, self._note_pace),
            (PARKED_SECONDS, self._end_parked),
            (DUTIES_SECONDS, self._ask_for_duties),
        ]
        self.pace = Pace()
        self._money = Steward(database, settings)
        self._admission = AdmissionControl.of(database, settings)
        self._pipelines = PipelineKeeper(database, settings, self._admission, pace=self.pace)
        self._phases = PhaseLog(database)
        self._pools = PoolStatusWriter(database, self.pace)
        self.metrics = Metrics()
        self.metrics.registry.register(HandoffCounts(self._pipelines.feeder.handed_on))
        self._audit = AuditLog(database, settings, self.metrics, self.pace)
        self._batches = BatchLog()
        self._turns = Turns(database, settings, self._admission, self.pace)
        self._calls = WorkerCalls(database, settings)
        self._watch = WorkerWatch(settings.lease_seconds / 2)
        self._due = [0.0] * len(self._periodic)

    async def begin(self) -> None:
        """Note that this steward leads from now on."""
        facts = {"host": socket.gethostname(), "pid": os.getpid(), "version": __version__}
        async with self._database.relaxed() as conn:
            await changes.record(conn, ChangeKind.STEWARD_LEADS, "steward", facts)
            await duties.enter(conn)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Look at the database beside the rounds, so that a long one is not taken for an outage (see `lost_workers`), and keep
        what such a round must not hold up, or what takes longer than a round may.
        """
        own = self._keep_looking, self._keep_phases, self._calls.keep, self._admission.keep
        async with beside(*own, self._pools.keep, self._audit.keep, self._pipelines.keep, self._turns.keep):
            yield

    async def _keep_looking(self) -> None:
        while True:
            await self.pace.pause(self._watch.gap / LOOKS_IN_GAP)  # while the steward rests, it looks itself
            with suppress(*TRANSIENT):  # the round will say so; the watch sees that the look is missing
                async with self._database.relaxed() as conn:
                    await reaping.look(conn, self._watch)

    def look(self, now: float, server_start: float) -> None:
        """Note that the database answers, with its time and that of its server's start."""
        self._watch.look(now, server_start)

    async def run(self) -> bool:
        """Run one round. Returns whether something changed, so that the next round should follow soon."""
        with self.metrics.rounds.time():
            return await self._round()

    async def _round(self) -> bool:
        for i, (seconds, step) in enumerate(self._periodic):
            if monotonic() >= self._due[i] and await self._attempted(step):
                self._due[i] = monotonic() + seconds
        async with self._database.relaxed() as conn:
            workers, chunks = await reaping.reap(conn, self._watch)
            await order_deltas.fold(conn)
            promoted = await chunk_sweeps.promote(conn)
            expired = await expiry.expire(conn)
            has_work = await settling.has_work(conn)
        if workers:
            log.warning("worker.reaped", workers=workers, chunks=chunks)
            self.metrics.workers_lost.inc(workers)
            self.metrics.chunks_reaped.inc(chunks)
        reserved = await self._attempted(self._money.run)
        moved = await self._attempted(self._settle) if has_work else False
        moved |= await self._attempted(self._keep_pipelines)
        hinted = await due_sweep.sweep(self._database, self._hints, self._settings)
        if chunks or promoted or reserved or moved:
            self._calls.note()
        return bool(chunks or promoted or expired or moved or hinted or self._money.hurries)

    async def _attempted(self, step: Callable[[], Awaitable[object]]) -> bool:
        """Run a step. False: it changed nothing, or the database refused it; it runs again, and the other steps go on."""
        try:
            return await step() is not False
        except TRANSIENT as error:
            if away(error):
                raise
            self.metrics.refused.inc()
            log.warning("round.failed", step=getattr(step, "__name__", ""), error=cause(error))
            return False

    async def _settle(self) -> bool:
        """Settle batches. Returns whether chunks or batches changed."""
        async with self._database.relaxed() as conn:
            # In its own transaction: it takes locks that come after those of batches.
            swept = await chunk_sweeps.sweep(conn)
        moved: list[BatchProgress] = []
        async with self._database.transaction() as conn:
            settled = await batches.settle(conn, moved.append, tell_stages)
        _log(self._batches.moved(moved))
        _log(self._batches.ended(settled))
        batch_spans.ended(settled)
        await queued_sessions.note(self._database, settled, self._settings)
        self.metrics.count_ended(settled)
        self._pipelines.note(settled, progress=bool(moved))
        self._turns.ended(settled)
        return bool(swept or settled)

    async def _keep_pipelines(self) -> bool:
        """Give up, begin and end what is due of pipelines. Returns whether anything changed."""
        return await self._pipelines.run()

    async def _end_parked(self) -> None:
        """End the waits for answers from outside that are over."""
        async with self._database.transaction() as conn:
            dropped = await parked.drop(conn)
            timed_out = await parked.time_out(conn)
        if dropped or timed_out:
            log.info("parked.ended", dropped=dropped, timed_out=timed_out)

    async def _keep_partitions(self) -> None:
        async with self._database.transaction() as conn:
            created = await partitions.create(conn, self._settings.partition_days_ahead)
        if created:
            log.info("partitions.created", names=created)

    async def _write_progress(self) -> None:
        async with self._database.relaxed() as conn:
            running = await running_batches.running(conn)
        _log(self._batches.running(running))
        async with self._database.transaction() as conn:
            await self._progress_events.write(conn)

    async def _correct_held_deliveries(self) -> None:
        async with self._database.relaxed() as conn:
            await endpoint_state.correct_held(conn)

    async def _remove_endpoints(self) -> None:
        async with self._database.relaxed() as conn:
            await endpoint_removal.step(conn)

    async def _note_pace(self) -> None:
        async with self._database.relaxed() as conn:
            await pace_log.note(conn)

    async def _keep_phases(self) -> None:
        while True:
            with suppress(*TRANSIENT):
                await self._attempted(self._phases.look)
            await self.pace.pause(PHASE_SECONDS)

    async def _ask_for_duties(self) -> None:
        """Ask for the duties that are due. Whoever closes an account sees its end soon."""
        async with self._database.relaxed() as conn:
            if await tenants.closing(conn):
                await duties.hasten(conn, ACCOUNTS)
            due = await duties.ask(conn)
        if due:
            await self._hints.duties(due, RETRY_SECONDS)
