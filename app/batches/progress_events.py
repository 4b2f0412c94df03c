"""Events about the progress of running batches, for subscriptions that want them: started, progress, at risk.

The leading steward writes them from what it reads, so they are a moment late. Each is written once, also after a change of
leader, because the number of finished items is part of its key.
"""

from dataclasses import dataclass, field

from app import clock
from app.db.pool import Connection
from app.queue import maintenance
from app.queue.maintenance import UnderWay
from app.webhooks import service as webhooks

STARTED, PROGRESS, AT_RISK = "batch.started", "batch.progress", "batch.at_risk"
KINDS = (STARTED, PROGRESS, AT_RISK)


@dataclass
class ProgressEvents:
    """Writes the events, and remembers them, so the database need not refuse them again."""

    progress_seconds: float
    _started: set[tuple[int, int]] = field(default_factory=set)
    _progress: dict[tuple[int, int], tuple[float, int]] = field(default_factory=dict)
    _at_risk: set[tuple[int, int]] = field(default_factory=set)

    async def write(self, conn: Connection) -> int:
        """Write the events that are due. Returns their number. Call in a durable transaction."""
        wanted = await webhooks.wanted(conn, KINDS)
        batches = await maintenance.under_way(conn, sorted({tenant_id for tenant_id, _ in wanted})) if wanted else []
        running = {(batch.batch_id, batch.run) for batch in batches}
        self._started &= running
        self._at_risk &= running
        self._progress = {name: last for name, last in self._progress.items() if name in running}
        count = 0
        for batch in batches:
            for kind, n in self._due(batch):
                if (batch.tenant_id, kind) in wanted:
                    await self._emit(conn, batch, kind, n)
                    count += 1
        return count

    def _due(self, batch: UnderWay) -> list[tuple[str, int]]:
        name, done = (batch.batch_id, batch.run), batch.ok + batch.failed
        events: list[tuple[str, int]] = []
        if name not in self._started:
            self._started.add(name)
            events.append((STARTED, 0))
        last_at, last_done = self._progress.setdefault(name, (clock.monotonic(), 0))
        if done > last_done and clock.monotonic() - last_at >= self.progress_seconds:
            self._progress[name] = clock.monotonic(), done
            events.append((PROGRESS, done))
        if batch.late and name not in self._at_risk:
            self._at_risk.add(name)
            events.append((AT_RISK, 0))
        return events

    async def _emit(self, conn: Connection, batch: UnderWay, kind: str, n: int) -> None:
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
