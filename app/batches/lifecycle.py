"""The life of a batch after its submit: pause, resume, cancel, retry, and its end.

Each verb is one durable transaction, which writes the state, its audit row and the event (`final_events`). No other code makes a
batch final. app.states has the transitions. Which batches expire is decided in app.queue.expiry.

A cancel runs `change_state`: app.queue.batch_state changes the rows of the batch and its chunks. A worker with items of the batch
aborts them after its next heartbeat (workers.gpu.puller.on_heartbeat). `settle` ends the batch when its last chunk is gone.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Literal
from uuid import UUID

import structlog

from app import trace_context
from app.admission import quota_events, quotas
from app.audit import log as audit
from app.audit.acts import Act
from app.audit.record import Record
from app.batches import batch_spans, batch_usage, final_events, requeueing
from app.budgets import queued
from app.budgets import service as budgets
from app.budgets.service import BudgetsChanged
from app.db.pool import Connection, Database
from app.engines.catalogue import Catalogue
from app.errors import Conflict, NotFound, StageOfPipeline
from app.events import BatchData, EventKind
from app.files import service as files
from app.queue import batch_state, dependencies, running_batches, settling, wakes
from app.settings import Settings
from app.states import BATCH, BatchState
from app.tenants.service import Tenant
from app.webhooks import emitter

log = structlog.get_logger()
Verb = Literal["pause", "resume", "cancel"]
Terms = Mapping[str, object]
Tell = Callable[[Connection, Sequence[settling.Settled]], Awaitable[None]]

_ACTS = {
    "pause": Act.BATCH_PAUSE,
    "resume": Act.BATCH_RESUME,
    "cancel": Act.BATCH_CANCEL,
    "retry": Act.BATCH_RETRY,
}
_REACHED = {
    "pause": (BatchState.PAUSED,),
    "resume": (BatchState.OPEN,),
    "cancel": (BatchState.CANCELLING, BatchState.CANCELLED),
}


async def change_state(database: Database, tenant: Tenant, request_id: UUID, verb: Verb) -> list[settling.Settled]:
    """Pause, resume or cancel. A repeated verb has no effect. Returns the batch if it is final now. Raises NotFound, Conflict."""
    async with database.transaction() as conn:
        if verb != "cancel" and await _held(conn, tenant, request_id, verb):
            return []
        moved = await batch_state.transition(conn, verb, tenant.tenant_id, request_id)
        if moved is None:
            standing = await _standing(conn, tenant, request_id)
            if standing.pipeline_id is not None:
                raise StageOfPipeline
            if standing.state not in _REACHED[verb]:
                raise Conflict(f"The batch is {standing.state}: {_only(verb)}")
            return []
        batch_id, before = moved
        await _record(conn, tenant, request_id, verb, {"state": str(before)}, {"state": str(BATCH.target(verb))})
        if verb == "cancel":
            await files.note_cancel(conn, tenant.tenant_id, request_id)
        ended = await settling.finalise(conn, [batch_id]) if verb == "cancel" else []
        await final_events.write(conn, ended)
        ready = await batch_state.ready_chunks(conn, batch_id) if verb == "resume" else {}
    wakes.notify(ready)
    for batch in ended:  # a batch without items in an engine ends here, so the steward does not log it
        trace_context.enter(batch.traceparent)
        log.info(
            f"batch.{batch.state}", request_id=str(request_id), ok=batch.ok, failed=batch.failed, items=batch.total
        )
    batch_spans.ended(ended)
    return ended


async def _held(conn: Connection, tenant: Tenant, request_id: UUID, verb: str) -> bool:
    """Pause or resume a batch that waits for others. It is paused anyway, and starts by itself unless its owner has paused it.
    False: it waits for none.
    """
    held = verb == "pause"
    before = await dependencies.hold(conn, tenant.tenant_id, request_id, held=held)
    if before is not None and before != held:
        await _record(conn, tenant, request_id, verb, {"held": before}, {"held": held})
    return before is not None


async def _record(conn: Connection, tenant: Tenant, request_id: UUID, verb: str, before: Terms, after: Terms) -> None:
    await audit.record(conn, Record(_ACTS[verb], str(request_id), tenant.account_id, before=before, after=after))


async def retry(
    database: Database,
    settings: Settings,
    catalogue: Catalogue,
    tenant: Tenant,
    request_id: UUID,
    of_run: int | None = None,
) -> int:
    """Run the failed, cancelled and expired items of a final batch again. Returns their number. Raises NotFound, Conflict,
    QuotaExceeded.

    The batch gets new output and error files. `of_run`, the run to be retried, makes the call safe to repeat: after a later run
    has started, it has no effect and returns 0.
    """
    while True:
        with suppress(BudgetsChanged):
            return await _begin_run(database, settings, catalogue, tenant, request_id, of_run)


async def _begin_run(
    database: Database,
    settings: Settings,
    catalogue: Catalogue,
    tenant: Tenant,
    request_id: UUID,
    of_run: int | None,
) -> int:
    async with quota_events.told(database, tenant), database.transaction() as conn:
        limits = await quotas.lock(conn, tenant)
        batch = await batch_state.reopen(conn, tenant.tenant_id, request_id, of_run)
        if batch is None:
            standing = await _standing(conn, tenant, request_id)
            if standing.pipeline_id is not None:
                raise StageOfPipeline
            if standing.shredded:
                raise Conflict("The contents of the batch were deleted; nothing to retry")
            if of_run is not None and standing.run == of_run + 1:
                return 0
            if of_run is not None and standing.run != of_run:
                raise Conflict(f"The batch is in run {standing.run}, not {of_run}")
            answered = standing.ok == standing.total
            raise Conflict("Every item was answered; nothing to retry" if answered else _only_final(standing.state))
        await files.assign_output_files(conn, tenant.tenant_id, request_id)
        count = await _requeue(conn, settings, catalogue, tenant, batch)
        await _record(conn, tenant, request_id, "retry", {"run": batch.run - 1}, {"run": batch.run, "items": count})
        await quotas.check_queued(conn, tenant, limits)
        await emitter.emit(
            conn,
            tenant_id=tenant.tenant_id,
            kind=EventKind.BATCH_QUEUED,
            model=batch.model,
            batch_id=batch.batch_id,
            run=batch.run,
            data=_queued_again(tenant, request_id, batch),
        )
        ready = await batch_state.ready_chunks(conn, batch.batch_id)
    wakes.notify(ready)
    return count


def _queued_again(tenant: Tenant, request_id: UUID, batch: batch_state.Reopened) -> BatchData:
    return BatchData(
        request_id=str(request_id),
        account_id=tenant.account_id,
        traceparent=batch.traceparent,
        policy_rules=batch.rules,
    )


async def _requeue(
    conn: Connection, settings: Settings, catalogue: Catalogue, tenant: Tenant, batch: batch_state.Reopened
) -> int:
    """Queue the items without an answer, by model. Returns their number. Raises ModelUnknown, BudgetsChanged."""
    items = await batch_state.unanswered(conn, batch.batch_id)
    parts = await requeueing.cut_again(conn, settings, catalogue, batch, items)
    for part in sorted(parts, key=attrgetter("pool_id")):  # all transactions lock pools in this order
        await batch_state.requeue(conn, batch, tenant.tenant_id, part.pool_id, part.chunks)
    for part in parts:
        await part.look.check(conn)
    return sum(len(seqs) for seqs, _ in items.values())


async def settle(
    conn: Connection,
    on_fold: Callable[[running_batches.BatchProgress], None] = lambda progress: None,
    tell: Tell | None = None,
) -> list[settling.Settled]:
    """Count finished chunks, end finished batches, book the usage, and write the events. Call inside a durable transaction.

    `on_fold` is called for each batch with progress, before the commit. `tell` writes further events of those that ended.
    """
    await settling.exclusively(conn)
    money = queued.Sums() if await budgets.any_exists(conn) else None
    settled, used = await settling.settle(conn, on_fold, money.read if money else None)
    await batch_usage.book(conn, used)
    if money is not None:
        await money.settle(conn)
    await final_events.write(conn, settled)
    if tell is not None:
        await tell(conn, settled)
    return settled


async def _standing(conn: Connection, tenant: Tenant, request_id: UUID) -> batch_state.StoredState:
    found = await batch_state.stored_state(conn, tenant.tenant_id, request_id)
    if found is None:
        raise NotFound("No batch with this request_id in this account")
    return found


def _only(verb: Verb) -> str:
    sources = next(t.sources for t in BATCH.transitions if t.verb == verb)
    done = {"pause": "paused", "resume": "resumed", "cancel": "cancelled"}[verb]
    return f"only one that is {' or '.join(sources)} can be {done}"


def _only_final(state: BatchState) -> str:
    return f"The batch is {state}: cancel it or wait for its end, then retry the remaining items"
