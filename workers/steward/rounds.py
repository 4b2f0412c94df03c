"""One round of care. Every step is its own transaction and safe to repeat."""

import asyncio
from collections.abc import Awaitable, Callable

import psycopg
import structlog

from app.batches import lifecycle as batches
from app.batches.news import News
from app.clock import monotonic
from app.db.pool import Database
from app.errors import StorageError
from app.files import parts
from app.files import service as files
from app.queue import care, retention
from app.settings import Settings
from app.storage.store import Store
from app.webhooks import service as webhooks
from app.webhooks.sweep import Hints, sweep

NEWS_SECONDS = 1.0
MEND_SECONDS = 5.0
PACE_SECONDS = 10.0
RECOMPUTE_SECONDS = 120.0
PARTITION_SECONDS = 600.0
RETENTION_SECONDS = 600.0
log = structlog.get_logger("steward")


class Rounds:
    """The steward's work on one database."""

    def __init__(self, database: Database, hints: Hints, settings: Settings) -> None:
        self._database = database
        self._hints = hints
        self._settings = settings
        self._news = News(settings.webhook_progress_seconds)
        self._now_and_then: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (NEWS_SECONDS, self._tell_news),
            (MEND_SECONDS, self._mend_deliveries),
            (PARTITION_SECONDS, self._keep_partitions),
            (PACE_SECONDS, self._note_pace),
            (RECOMPUTE_SECONDS, self._recompute),
            (RETENTION_SECONDS, self._retire),
        ]
        self._retiring: asyncio.Task[None] | None = None
        self._due = [0.0] * len(self._now_and_then)

    async def run(self) -> bool:
        """One round. True: something moved, so the next round should follow soon."""
        for i, (seconds, care_for) in enumerate(self._now_and_then):
            if monotonic() >= self._due[i]:
                await care_for()
                self._due[i] = monotonic() + seconds
        async with self._database.relaxed() as conn:
            workers, chunks = await care.reap(conn)
            promoted = await care.promote(conn)
            expired = await care.expire(conn)
            has_work = await care.has_work(conn)
        if workers:
            log.warning("worker.reaped", workers=workers, chunks=chunks)
        moved = await self._settle() if has_work else 0
        hinted = await sweep(self._database, self._hints, self._settings)
        return bool(chunks or promoted or expired or moved or hinted)

    async def _settle(self) -> int:
        """Returns how many chunks and batches moved."""
        async with self._database.relaxed() as conn:
            swept = await care.sweep(conn)  # apart from what follows: it holds locks that come after those of batches
        async with self._database.transaction() as conn:
            settled = await batches.settle(conn)
        for batch in settled:
            log.info(
                f"batch.{batch.state}",
                request_id=str(batch.request_id),
                ok=batch.ok,
                failed=batch.failed,
                unfinished=batch.total - batch.ok - batch.failed,
                prompt_tokens=batch.prompt_tokens,
                completion_tokens=batch.completion_tokens,
            )
        return swept + len(settled)

    async def _keep_partitions(self) -> None:
        async with self._database.transaction() as conn:
            created = await care.create_partitions(conn, self._settings.partition_days_ahead)
        if created:
            log.info("partitions.created", names=created)

    async def _tell_news(self) -> None:
        async with self._database.transaction() as conn:
            await self._news.tell(conn)

    async def _mend_deliveries(self) -> None:
        async with self._database.relaxed() as conn:
            await webhooks.mend(conn)

    async def _note_pace(self) -> None:
        async with self._database.relaxed() as conn:
            await care.note_pace(conn)

    async def _recompute(self) -> None:
        async with self._database.transaction() as conn:
            drifts = await care.recompute(conn)
        for drift in drifts:
            log.error(
                "cache.drift",
                pool=drift.pool_id,
                tenant=drift.tenant_id,
                ready=drift.ready,
                tokens=drift.inflight_tokens,
            )

    async def _retire(self) -> None:
        """Start dropping old days, beside the rounds: it waits for others, and nobody should wait for it."""
        if self._retiring is None or self._retiring.done():
            self._retiring = asyncio.create_task(self._drop_old_days())

    async def _drop_old_days(self) -> None:
        try:
            store = Store.of(self._settings)
            expired = await files.expire(self._database, store) + await parts.expire(self._database, store)
            outcome = await retention.run(self._database.url, self._settings.retention_days, Store.of(self._settings))
        except (psycopg.Error, StorageError) as error:
            log.warning("retention.failed", error=str(error.__cause__ or error).strip())
            return
        if expired:
            log.info("files.expired", files=expired)
        for day, count in outcome.dropped.items():
            log.info("day.dropped", day=str(day), batches=count)
        if outcome.busy:
            log.info("retention.waits", day=str(outcome.busy))
