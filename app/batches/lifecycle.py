"""The life of a batch after its submit: pause, resume, cancel, retry, and its end.

Each verb is one durable transaction, which writes the state and the event. No other code makes a batch final. app.states
has the transitions, and app.queue.maintenance expires batches whose deadline has passed.
"""

import asyncio
from collections.abc import Callable
from operator import itemgetter
from typing import Literal
from uuid import UUID

import structlog

from app.db.pool import Connection, Database
from app.engines.catalogue import Catalogue
from app.engines.service import ensure_pool
from app.errors import Conflict, ModelUnknown, NotFound
from app.events import BatchData, Counts, EventKind, Failure
from app.files import service as files
from app.queue import failures, maintenance, progress, response_log
from app.queue import lifecycle as queue
from app.queue.chunking import NewChunk, cut
from app.queue.types import Kind
from app.settings import Settings
from app.states import BATCH, BatchState
from app.tenants.service import Tenant
from app.webhooks import emitter

log = structlog.get_logger()
Verb = Literal["pause", "resume", "cancel"]

_FAILED = Failure("Model execution failed", 5001, 500)
_REFUSED = Failure("No item is valid; the results have the reasons", 5006, 400)
_EVENTS = {
    BatchState.COMPLETED: EventKind.BATCH_SUCCEEDED,
    BatchState.FAILED: EventKind.BATCH_FAILED,
    BatchState.CANCELLED: EventKind.BATCH_CANCELLED,
    BatchState.EXPIRED: EventKind.BATCH_EXPIRED,
}
_REACHED = {
    "pause": (BatchState.PAUSED,),
    "resume": (BatchState.OPEN,),
    "cancel": (BatchState.CANCELLING, BatchState.CANCELLED),
}


async def change_state(database: Database, tenant: Tenant, request_id: UUID, verb: Verb) -> list[maintenance.Settled]:
    """Pause, resume or cancel. A repeated verb has no effect. Returns the batch if it is final now. Raises NotFound, Conflict."""
    async with database.transaction() as conn:
        batch_id = await queue.change_state(conn, verb, tenant.tenant_id, request_id)
        if batch_id is None:
            standing = await _standing(conn, tenant, request_id)
            if standing.state not in _REACHED[verb]:
                raise Conflict(f"The batch is {standing.state}: {_only(verb)}")
            return []
        if verb == "cancel":
            await files.note_cancel(conn, tenant.tenant_id, request_id)
        ended = await maintenance.finalise(conn, [batch_id]) if verb == "cancel" else []
        await _announce(conn, ended)
    for batch in ended:  # a batch without items in an engine ends here, so the steward does not log it
        log.info(
            f"batch.{batch.state}", request_id=str(request_id), ok=batch.ok, failed=batch.failed, items=batch.total
        )
    return ended


async def retry(
    database: Database,
    settings: Settings,
    catalogue: Catalogue,
    tenant: Tenant,
    request_id: UUID,
    of_run: int | None = None,
) -> int:
    """Run the failed, cancelled and expired items of a final batch again. Returns their number. Raises NotFound, Conflict.

    The batch gets new output and error files. `of_run`, the run to be retried, makes the call safe to repeat: after a later run
    has started, it has no effect and returns 0.
    """
    async with database.transaction() as conn:
        batch = await queue.reopen(conn, tenant.tenant_id, request_id, of_run)
        if batch is None:
            standing = await _standing(conn, tenant, request_id)
            if of_run is not None and standing.run == of_run + 1:
                return 0
            if of_run is not None and standing.run != of_run:
                raise Conflict(f"The batch is in run {standing.run}, not {of_run}")
            answered = standing.ok == standing.total
            raise Conflict("Every item was answered; nothing to retry" if answered else _only_final(standing.state))
        await files.assign_output_files(conn, tenant.tenant_id, request_id)
        count = await _requeue(conn, settings, catalogue, tenant, batch)
        await emitter.emit(
            conn,
            tenant_id=tenant.tenant_id,
            kind=EventKind.BATCH_QUEUED,
            model=batch.model,
            batch_id=batch.batch_id,
            run=batch.run,
            data=BatchData(request_id=str(request_id), account_id=tenant.account_id, traceparent=batch.traceparent),
        )
        return count


async def _requeue(
    conn: Connection, settings: Settings, catalogue: Catalogue, tenant: Tenant, batch: queue.Reopened
) -> int:
    """Queue the items without an answer, by model. Returns their number. Raises ModelUnknown."""
    by_pool: list[tuple[int, list[NewChunk]]] = []
    for name, (seqs, est_tokens) in (await queue.unanswered(conn, batch.batch_id)).items():
        model = catalogue.resolve(name or batch.model)
        if model is None:
            raise ModelUnknown(f"The batch's model {name or batch.model} is no longer in the catalogue")
        tokens, items = settings.chunk_tokens, settings.chunk_items
        cuts = await asyncio.to_thread(cut, est_tokens, max_tokens=tokens, max_items=items, seqs=seqs)
        pool_id = await ensure_pool(conn, model.served)
        by_pool.append((pool_id, cuts))
    for pool_id, cuts in sorted(by_pool, key=itemgetter(0)):  # all transactions lock pools in this order
        await queue.requeue(conn, batch, tenant.tenant_id, pool_id, cuts)
    return sum(part.n for _, cuts in by_pool for part in cuts)


async def settle(
    conn: Connection, on_fold: Callable[[progress.BatchProgress], None] = lambda progress: None
) -> list[maintenance.Settled]:
    """Count finished chunks, make finished batches final, and write the events. Call inside a durable transaction.

    `on_fold` is called for each batch with progress, before the commit.
    """
    settled = await maintenance.settle(conn, on_fold)
    await _announce(conn, settled)
    return settled


async def _announce(conn: Connection, settled: list[maintenance.Settled]) -> None:
    for batch in settled:
        kind = await _event(conn, batch)
        if kind is None:
            continue
        failure = None
        if batch.state == BatchState.FAILED:
            failure = _REFUSED if await failures.all_refused(conn, batch.batch_id, batch.run) else _FAILED
        data = BatchData(
            request_id=str(batch.request_id),
            account_id=batch.account_id,
            traceparent=batch.traceparent,
            counts=Counts.of(batch.total, batch.ok, batch.failed),
            failure=failure,
        )
        await emitter.emit(
            conn,
            tenant_id=batch.tenant_id,
            kind=kind,
            model=batch.model,
            batch_id=batch.batch_id,
            run=batch.run,
            data=data,
        )


async def _event(conn: Connection, batch: maintenance.Settled) -> EventKind | None:
    """The event of a final batch; None: a flex request has none, because its client waits for the answer."""
    match batch.kind:
        case Kind.FLEX:
            return None
        case Kind.RESPONSE if batch.state == BatchState.COMPLETED:
            return EventKind(f"response.{await response_log.answer_status(conn, batch.batch_id)}")
        case Kind.RESPONSE:
            return EventKind.RESPONSE_CANCELLED if batch.state == BatchState.CANCELLED else EventKind.RESPONSE_FAILED
    return _EVENTS[batch.state]


async def _standing(conn: Connection, tenant: Tenant, request_id: UUID) -> queue.StoredState:
    found = await queue.stored_state(conn, tenant.tenant_id, request_id)
    if found is None:
        raise NotFound("No batch with this request_id in this account")
    return found


def _only(verb: Verb) -> str:
    sources = next(t.sources for t in BATCH.transitions if t.verb == verb)
    done = {"pause": "paused", "resume": "resumed", "cancel": "cancelled"}[verb]
    return f"only one that is {' or '.join(sources)} can be {done}"


def _only_final(state: BatchState) -> str:
    return f"The batch is {state}: cancel it or wait for its end, then retry the remaining items"
