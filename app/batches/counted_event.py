"""Writes an event of a stored batch with its counts."""

from app.db.pool import Connection
from app.events import BatchData, BatchFailure, Counts, EventKind
from app.queue.running_batches import BatchInProgress
from app.queue.settling import Settled
from app.webhooks import emitter


async def emit(
    conn: Connection,
    batch: Settled | BatchInProgress,
    kind: EventKind,
    *,
    n: int = 0,
    failure: BatchFailure | None = None,
    traceparent: str | None = None,
) -> None:
    """Write the event. A second one of the same run, kind and `n` is ignored. `traceparent`: the event's, if not the submit's."""
    data = BatchData(
        request_id=str(batch.request_id),
        account_id=batch.account_id,
        traceparent=traceparent or batch.traceparent,
        counts=Counts.of(batch.total, batch.ok, batch.failed),
        failure=failure,
        policy_rules=batch.rules,
        diverted_to=batch.diverted_to,
    )
    await emitter.emit(
        conn,
        tenant_id=batch.tenant_id,
        kind=kind,
        model=batch.model,
        batch_id=batch.batch_id,
        run=batch.run,
        data=data,
        n=n,
    )
