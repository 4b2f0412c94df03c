"""The event of a stored batch, with its counts."""

from app.events import BatchData, BatchFailure, Counts, EventKind
from app.queue.running_batches import BatchInProgress
from app.queue.settling import Settled
from app.webhooks.emitter import NewEvent


def of(
    batch: Settled | BatchInProgress,
    kind: EventKind,
    *,
    n: int = 0,
    failure: BatchFailure | None = None,
    traceparent: str | None = None,
) -> NewEvent:
    """The event. A second one of the same run, kind and `n` is ignored. `traceparent`: the event's, if not the submit's."""
    data = BatchData(
        request_id=str(batch.request_id),
        account_id=batch.account_id,
        traceparent=traceparent or batch.traceparent,
        counts=Counts.of(batch.total, batch.ok, batch.failed),
        failure=failure,
        policy_rules=batch.rules,
        diverted_to=batch.diverted_to,
    )
    return NewEvent(batch.tenant_id, kind, batch.model, batch.batch_id, batch.run, data, n)
