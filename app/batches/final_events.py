"""Writes the events `batch.succeeded`, `batch.failed`, `batch.cancelled` and `batch.expired`, and `response.*` of a response.

`lifecycle` calls this in the transaction that makes the batch final. A batch in progress has those of `progress_events`.
"""

from collections.abc import Sequence

from app.batches import batch_spans, counted_event
from app.db.pool import Connection
from app.events import BatchFailure, EventKind
from app.queue import failures, response_log
from app.queue.settling import Settled
from app.queue.types import Kind
from app.states import BatchState
from app.webhooks import emitter

_FAILED = BatchFailure("Model execution failed", 5001, 500)
_REFUSED = BatchFailure("No item is valid; the results have the reasons", 5006, 400)
# A flex request has no event, because its client waits for the answer, nor has what is part of something else.
_UNTOLD = (Kind.FLEX, Kind.STAGE, Kind.CHECKPOINT)
_FINAL_EVENTS = {
    BatchState.COMPLETED: EventKind.BATCH_SUCCEEDED,
    BatchState.FAILED: EventKind.BATCH_FAILED,
    BatchState.CANCELLED: EventKind.BATCH_CANCELLED,
    BatchState.EXPIRED: EventKind.BATCH_EXPIRED,
}


async def write(conn: Connection, settled: Sequence[Settled]) -> None:
    """Write the event of each batch that has just become final. Call in the transaction that ended them. The number of statements
    does not grow with that of the batches.
    """
    told = [batch for batch in settled if batch.kind not in _UNTOLD]
    refused = await failures.all_refused(conn, [(b.batch_id, b.run) for b in told if b.state == BatchState.FAILED])
    answered = [b.batch_id for b in told if b.kind == Kind.RESPONSE and b.state == BatchState.COMPLETED]
    incomplete = await response_log.incomplete(conn, answered)
    new = []
    for batch in told:
        failure = None
        if batch.state == BatchState.FAILED:
            failure = _REFUSED if batch.batch_id in refused else _FAILED
        kind = _kind(batch, incomplete=batch.batch_id in incomplete)
        new.append(counted_event.of(batch, kind, failure=failure, traceparent=batch_spans.end_of(batch)))
    await emitter.emit_all(conn, new)


def _kind(batch: Settled, *, incomplete: bool) -> EventKind:
    """The event of a final batch. `incomplete`: of a response whose answer was cut short."""
    if batch.kind != Kind.RESPONSE:
        return _FINAL_EVENTS[batch.state]
    if batch.state == BatchState.COMPLETED:
        return EventKind.RESPONSE_INCOMPLETE if incomplete else EventKind.RESPONSE_COMPLETED
    return EventKind.RESPONSE_CANCELLED if batch.state == BatchState.CANCELLED else EventKind.RESPONSE_FAILED
