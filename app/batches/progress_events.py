"""Writes `batch.started`, `batch.progress` and `batch.at_risk` for the accounts that subscribe to them.

The steward looks at running batches, so these events come a moment late. Each is written once, whichever steward leads: its `n`
is the number of items that were done.
"""

from dataclasses import dataclass, field

from app import clock
from app.batches import counted_event
from app.db.pool import Connection
from app.events import PROGRESS_KINDS, EventKind
from app.queue import running_batches
from app.queue.running_batches import BatchInProgress
from app.webhooks import emitter


@dataclass
class ProgressEvents:
    """Remembers the events that it has written, so that it does not write them to the database again."""

    progress_seconds: float
    _started: set[tuple[int, int]] = field(default_factory=set)
    _progress: dict[tuple[int, int], tuple[float, int]] = field(default_factory=dict)
    _at_risk: set[tuple[int, int]] = field(default_factory=set)

    async def write(self, conn: Connection) -> int:
        """Look at all running batches once. Returns how many events were written. Call in a durable transaction."""
        subscribed = await emitter.subscribed(conn, PROGRESS_KINDS)
        tenant_ids = sorted({tenant_id for tenant_id, _ in subscribed})
        batches = await running_batches.in_progress(conn, tenant_ids) if subscribed else []
        running = {(batch.batch_id, batch.run) for batch in batches}
        self._started &= running
        self._at_risk &= running
        self._progress = {run: written for run, written in self._progress.items() if run in running}
        due = [
            counted_event.of(batch, kind, n=n)
            for batch in batches
            for kind, n in self._due(batch)
            if (batch.tenant_id, kind) in subscribed
        ]
        await emitter.emit_all(conn, due)
        return len(due)

    def _due(self, batch: BatchInProgress) -> list[tuple[EventKind, int]]:
        """The events that are due for a batch, each with its `n`."""
        run, done, due = (batch.batch_id, batch.run), batch.ok + batch.failed, list[tuple[EventKind, int]]()
        if run not in self._started:
            self._started.add(run)
            due.append((EventKind.BATCH_STARTED, 0))
        written_at, written = self._progress.setdefault(run, (clock.monotonic(), 0))
        if done > written and clock.monotonic() - written_at >= self.progress_seconds:
            self._progress[run] = clock.monotonic(), done
            due.append((EventKind.BATCH_PROGRESS, done))
        if batch.late and run not in self._at_risk:
            self._at_risk.add(run)
            due.append((EventKind.BATCH_AT_RISK, 0))
        return due
