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

_FAILED = BatchFailure("Model execution failed", 5001, 500)
_REFUSED = BatchFailure("No item is valid; the results have the reasons", 5006, 400)
_FINAL_EVENTS = {
    BatchState.COMPLETED: EventKind.BATCH_SUCCEEDED,
    BatchState.FAILED: EventKind.BATCH_FAILED,
    BatchState.CANCELLED: EventKind.BATCH_CANCELLED,
    BatchState.EXPIRED: EventKind.BATCH_EXPIRED,
}


async def write(conn: Connection, settled: Sequence[Settled]) -> None:
    """Write the event of each batch that has just become final. Call in the transaction that ended them."""
    for batch in settled:
        kind = await _event(conn, batch)
        if kind is None:
            continue
        failure = None
        if batch.state == BatchState.FAILED:
            failure = _REFUSED if await failures.all_refused(conn, batch.batch_id, batch.run) else _FAILED
        await counted_event.emit(conn, batch, kind, failure=failure, traceparent=batch_spans.end_of(batch))


async def _event(conn: Connection, batch: Settled) -> EventKind | None:
    """The event of a final batch; None: a flex request has none, because its client waits for the answer, nor has what is part
    of something else.
    """
    match batch.kind:
        case Kind.FLEX | Kind.STAGE | Kind.CHECKPOINT:
            return None
        case Kind.RESPONSE if batch.state == BatchState.COMPLETED:
            return EventKind(f"response.{await response_log.answer_status(conn, batch.batch_id)}")
        case Kind.RESPONSE:
            return EventKind.RESPONSE_CANCELLED if batch.state == BatchState.CANCELLED else EventKind.RESPONSE_FAILED
    return _FINAL_EVENTS[batch.state]
