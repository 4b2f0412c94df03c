"""The steward's maintenance rounds. Every step is its own transaction and can be repeated safely."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress

import psycopg
import structlog
from psycopg_pool import PoolTimeout

from app import __version__
from app.admission.control import AdmissionControl
from app.batches import accounts, batch_spans, long_answers, queued_sessions
from app.batches import lifecycle as batches
from app.batches.phases import PhaseLog
from app.batches.progress_events import ProgressEvents
from app.changes import service as changes
from app.changes.kinds import ChangeKind
from app.clock import monotonic, now
from app.db.embedded import direct_url
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT, away
from app.engines import service as engines
from app.errors import KeysUnavailable, StorageError, StoreNotShared
from app.files import service as files
from app.files import shared_storage, upload_parts
from app.headroom import decision_log
from app.headroom import samples as engine_samples
from app.metering import latency, ledger, reports, sessions
from app.pipelines import parked
from app.pipelines.lifecycle import tell_stages
from app.policy import samples
from app.queue import (
    chunk_sweeps,
    expiry,
    order_deltas,
    order_drift,
    pace,
    pace_log,
    partitions,
    reaping,
    retention,
    running_batches,
    settling,
    shredding,
)
from app.queue.lost_workers import WorkerWatch
from app.queue.running_batches import BatchProgress
from app.sealing.keyring import Keyring
from app.sessions import retention as conversation_retention
from app.settings import Settings
from app.storage import late_removal
from app.storage.store import Store
from app.webhooks import endpoint_removal, endpoint_state
from app.webhooks.due_sweep import HintPublisher, sweep
from workers.steward.batch_log import BatchLog, LogLine
from workers.steward.beside import beside
from workers.steward.feeder import PipelineKeeper
from workers.steward.metrics import HandoffCounts, Metrics
from workers.steward.money import Money
from workers.steward.pool_status_writer import PoolStatusWriter
from workers.steward.rest import Pace
from workers.steward.sealing import AuditLog
from workers.steward.turns import Turns
from workers.steward.worker_calls import WorkerCalls

PROGRESS_SECONDS = 1.0
CORRECT_HELD_SECONDS = 5.0
RECOMPUTE_SECONDS = 120.0
PARTITION_SECONDS = 600.0
RETENTION_SECONDS = 600.0
LEDGER_SECONDS = 600.0
HISTORY_SECONDS = 600.0
PHASE_SECONDS = 5.0
OLD_DAYS = 20  # of usage that are added up at once
LEARN_SECONDS = 60.0
REMOVE_SECONDS = 1.0
ACCOUNT_SECONDS = 1.0
PARKED_SECONDS = 1.0
LOOKS_IN_GAP = 5  # so that a few late ones are no outage
log = structlog.get_logger("steward")


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
            (RECOMPUTE_SECONDS, self._recompute),
            (RETENTION_SECONDS, self._retire),
            (LEDGER_SECONDS, self._check_ledger),
            (LEDGER_SECONDS, self._keep_usage),
            (LEARN_SECONDS, self._learn_lengths),
            (HISTORY_SECONDS, self._keep_history),
            (ACCOUNT_SECONDS, self._close_accounts),
            (PARKED_SECONDS, self._end_parked),
        ]
        self.pace = Pace()
        self._money = Money(database, settings)
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
        self._retiring: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._stuck = False
        self._due = [0.0] * len(self._periodic)

    async def begin(self) -> None:
        """Note that this steward leads from now on."""
        facts = {"host": socket.gethostname(), "pid": os.getpid(), "version": __version__}
        async with self._database.relaxed() as conn:
            await changes.record(conn, ChangeKind.STEWARD_LEADS, "steward", facts)

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
        funded = await self._attempted(self._money.run)
        moved = await self._attempted(self._settle) if has_work else False
        moved |= await self._attempted(self._keep_pipelines)
        hinted = await sweep(self._database, self._hints, self._settings)
        if chunks or promoted or funded or moved:
            self._calls.note()
        return bool(chunks or promoted or expired or funded or moved or hinted)

    async def _attempted(self, step: Callable[[], Awaitable[object]]) -> bool:
        """Run a step. False: it changed nothing, or the database refused it; it runs again, and the other steps go on."""
        try:
            return await step() is not False
        except TRANSIENT as error:
            if away(error):
                raise
            self.metrics.refused.inc()
            log.warning("round.failed", step=getattr(step, "__name__", ""), error=str(error).strip())
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

    async def _recompute(self) -> None:
        async with self._database.relaxed() as conn:
            drifts = await order_drift.recompute(conn)
        for drift in drifts:
            log.error(
                "cache.drift",
                pool=drift.pool_id,
                tenant=drift.tenant_id,
                ready=drift.ready,
                tokens=drift.inflight_tokens,
            )

    async def _check_ledger(self) -> None:
        async with self._database.relaxed() as conn:
            differences = await reports.check(conn)
            await ledger.note_check(conn, sum(abs(each.ledger - each.queue) for each in differences))
            await ledger.forget_writers(conn)
        for each in differences:
            log.error("ledger.differs", account=each.account_id, count=each.count, ledger=each.ledger, queue=each.queue)

    async def _keep_usage(self) -> None:
        async with self._database.relaxed() as conn:
            await sessions.forget_old(conn)
        for _ in range(OLD_DAYS):
            async with self._database.transaction() as conn:
                if not await ledger.keep(conn, now()):
                    return

    async def _learn_lengths(self) -> None:
        await long_answers.learn(self._database)

    async def _keep_phases(self) -> None:
        while True:
            with suppress(*TRANSIENT):
                await self._attempted(self._phases.look)
            await self.pace.pause(PHASE_SECONDS)

    async def _keep_history(self) -> None:
        async with self._database.relaxed() as conn:
            await engine_samples.fold(conn)
            await latency.forget_old(conn)
            await changes.prune(conn)

    async def _retire(self) -> None:
        """Start to look after old days in a task of its own: it reads tables and waits for locks, and the rounds must not."""
        if self._retiring is None or self._retiring.done():
            self._retiring = asyncio.create_task(self._keep_old_days())

    async def _keep_old_days(self) -> None:
        """Each of these by itself: one that fails stops no other."""
        for duty in (
            self._forget_samples,
            self._forget_engines,
            self._forget_conversations,
            self._freeze_days,
            self._remove_files,
            self._remove_shredded,
            self._drop_days,
        ):
            try:
                await duty()
            except (psycopg.Error, PoolTimeout, StorageError, StoreNotShared) as error:
                name = duty.__name__.removeprefix("_")
                log.warning("retention.failed", duty=name, error=str(error.__cause__ or error).strip())

    async def _forget_samples(self) -> None:
        async with self._database.relaxed() as conn:
            await samples.forget_old(conn)

    async def _forget_engines(self) -> None:
        while True:
            async with self._database.transaction() as conn:
                forgotten = await engines.forget_old(conn)
                await decision_log.forget(conn, forgotten)
            if not forgotten:
                return
            log.info("engines.forgotten", engines=len(forgotten))

    async def _forget_conversations(self) -> None:
        await conversation_retention.run(self._database, self._settings.retention_days)

    async def _freeze_days(self) -> None:
        async with self._database.durable() as conn:
            frozen = await partitions.freeze(conn)
        if frozen:
            log.info("partitions.frozen", names=frozen)

    async def _store(self) -> Store:
        """The object store, once it is known to be that of the other parts. Raises StoreNotShared."""
        await shared_storage.require(self._database, self._settings, "steward")
        return Store.of(self._settings)

    async def _remove_files(self) -> None:
        store, grace = await self._store(), self._settings.object_grace_days
        expired = await files.expire(self._database, store, grace) + await upload_parts.expire(self._database, store)
        if expired:
            log.info("files.expired", files=expired)
        if swept := await files.sweep(self._database, store, grace):
            log.warning("objects.orphaned", objects=swept)
        await late_removal.sweep(self._database, store)

    async def _remove_shredded(self) -> None:
        if shredded := await shredding.sweep(self._database, await self._store()):
            log.info("batches.shredded", batches=shredded)

    async def _drop_days(self) -> None:
        store, grace = await self._store(), self._settings.object_grace_days
        outcome = await retention.run(direct_url(self._settings), self._settings.retention_days, store, grace)
        for day, count in outcome.dropped.items():
            log.info("day.dropped", day=str(day), batches=count)
        if outcome.busy:
            log.info("retention.waits", day=str(outcome.busy))

    async def _close_accounts(self) -> None:
        """Continue to delete accounts in a task of its own, because an account can be large."""
        if self._closing is None or self._closing.done():
            self._closing = asyncio.create_task(self._delete_accounts())

    async def _delete_accounts(self) -> None:
        try:
            store, keyring = Store.of(self._settings), Keyring.of(self._settings)
            deleted = await accounts.sweep(self._database, store, keyring)
        except (psycopg.Error, PoolTimeout, StorageError, KeysUnavailable) as error:
            if not self._stuck:
                log.warning("account.deletion_waits", error=str(error.__cause__ or error).strip())
            self._stuck = True
            return
        self._stuck = False
        for account_id in deleted:
            log.info("account.deleted", account=account_id)
