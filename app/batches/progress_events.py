"""What the steward notices of batches under way, for those who asked to hear of it: started, progress, at risk.

Noticed, so a moment late; each is written once, whoever leads: an event has the count of items it was written at.
"""

from dataclasses import dataclass, field

from app import clock
from app.db.pool import Connection
from app.queue import progress
from app.queue.progress import BatchInProgress
from app.webhooks import service as webhooks

STARTED, PROGRESS, AT_RISK = "batch.started", "batch.progress", "batch.at_risk"
KINDS = (STARTED, PROGRESS, AT_RISK)


@dataclass
class ProgressEvents:
    """Remembers what it has told, so that the database is not asked to refuse it again."""

    progress_seconds: float
    _started: set[tuple[int, int]] = field(default_factory=set)
    _progress: dict[tuple[int, int], tuple[float, int]] = field(default_factory=dict)
    _at_risk: set[tuple[int, int]] = field(default_factory=set)

    async def tell(self, conn: Connection) -> int:
        """Look once. Returns how many events were written. Call in a durable transaction."""
        wanted = await webhooks.wanted(conn, KINDS)
        batches = await progress.in_progress(conn, sorted({tenant_id for tenant_id, _ in wanted})) if wanted else []
        here = {(batch.batch_id, batch.run) for batch in batches}
        self._started &= here
        self._at_risk &= here
        self._progress = {name: told for name, told in self._progress.items() if name in here}
        count = 0
        for batch in batches:
            for kind, n in self._of(batch):
                if (batch.tenant_id, kind) in wanted:
                    await self._emit(conn, batch, kind, n)
                    count += 1
        return count

    def _of(self, batch: BatchInProgress) -> list[tuple[str, int]]:
        name, done, found = (batch.batch_id, batch.run), batch.ok + batch.failed, list[tuple[str, int]]()
        if name not in self._started:
            self._started.add(name)
            found.append((STARTED, 0))
        told_at, told = self._progress.setdefault(name, (clock.monotonic(), 0))
        if done > told and clock.monotonic() - told_at >= self.progress_seconds:
            self._progress[name] = clock.monotonic(), done
            found.append((PROGRESS, done))
        if batch.late and name not in self._at_risk:
            self._at_risk.add(name)
            found.append((AT_RISK, 0))
        return found

    async def _emit(self, conn: Connection, batch: BatchInProgress, kind: str, n: int) -> None:
        counts = {"total": batch.total, "succeeded": batch.ok, "failed": batch.failed}
        counts["unfinished"] = batch.total - batch.ok - batch.failed
        data = {"request_id": str(batch.request_id), "account_id": batch.account_id, "traceparent": batch.traceparent}
        await webhooks.emit(
            conn,
            tenant_id=batch.tenant_id,
            kind=kind,
            model=batch.model,
            batch_id=batch.batch_id,
            run=batch.run,
            n=n,
            data=data | {"counts": counts},
        )
