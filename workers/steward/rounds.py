"""One round of care. Every step is its own transaction and safe to repeat."""

import structlog

from app.batches import service as batches
from app.clock import monotonic
from app.db.pool import Database
from app.queue import care
from app.settings import Settings
from app.webhooks.sweep import Hints, sweep

_PARTITION_SECONDS = 600.0
log = structlog.get_logger("steward")


class Rounds:
    """The steward's work on one database."""

    def __init__(self, database: Database, hints: Hints, settings: Settings) -> None:
        self._database = database
        self._hints = hints
        self._settings = settings
        self._partitions_due = 0.0

    async def run(self) -> bool:
        """One round. True: something moved, so the next round should follow soon."""
        await self._keep_partitions()
        async with self._database.relaxed() as conn:
            workers, chunks = await care.reap(conn)
            promoted = await care.promote(conn)
            has_deltas = await care.has_work(conn)
        if workers:
            log.warning("worker.reaped", workers=workers, chunks=chunks)
        if has_deltas:
            await self._settle()
        hinted = await sweep(self._database, self._hints, self._settings)
        return bool(chunks or promoted or has_deltas or hinted)

    async def _settle(self) -> None:
        async with self._database.transaction() as conn:
            settled = await batches.settle(conn)
        for batch in settled:
            log.info(
                f"batch.{batch.state}",
                request_id=str(batch.request_id),
                ok=batch.ok,
                failed=batch.failed,
                prompt_tokens=batch.prompt_tokens,
                completion_tokens=batch.completion_tokens,
            )

    async def _keep_partitions(self) -> None:
        if monotonic() < self._partitions_due:
            return
        async with self._database.transaction() as conn:
            created = await care.create_partitions(conn, self._settings.partition_days_ahead)
        if created:
            log.info("partitions.created", names=created)
        self._partitions_due = monotonic() + _PARTITION_SECONDS
