"""Run a final pipeline again, as far as it has no answer: requests of which no child was made, and what comes of them."""

from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from app.admission import quota_events, quotas
from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record
from app.batches import requeueing
from app.batches.requeueing import Part
from app.budgets.service import BudgetsChanged
from app.db.pool import Connection, Database
from app.engines.catalogue import Catalogue
from app.errors import Conflict, NotFound
from app.files import service as files
from app.flows.counting import depths
from app.pipelines import events, ids, lifecycle, reads, verbs
from app.pipelines import lifecycle_sql as sql
from app.pipelines.running import Running
from app.pipelines.verbs import Again
from app.queue import batch_state, ingest, wakes
from app.sealing.keyring import Keyring
from app.settings import Settings
from app.states import PIPELINE, BatchState
from app.tenants.service import Tenant


async def retry(
    database: Database, settings: Settings, catalogue: Catalogue, tenant: Tenant, request_id: UUID, of_run: int | None
) -> int:
    """Begin a new run. Returns the number of requests that run again at once. `of_run`, the run to be retried, makes the call
    safe to repeat: after a later run has started, it has no effect and returns 0.

    Raises NotFound, Conflict, QuotaExceeded, KeysUnavailable.
    """
    while True:
        with suppress(BudgetsChanged):
            return await _begin_run(database, settings, catalogue, tenant, request_id, of_run)


async def _begin_run(
    database: Database, settings: Settings, catalogue: Catalogue, tenant: Tenant, request_id: UUID, of_run: int | None
) -> int:
    async with database.relaxed() as conn:
        standing = await verbs.standing(conn, tenant.tenant_id, request_id)
    if standing is None:
        raise NotFound(f"No pipeline found with id '{ids.format_id(request_id)}'.")
    if of_run is not None and standing.run == of_run + 1:
        return 0
    if standing.state not in PIPELINE.final() or standing.shredded or of_run not in (None, standing.run):
        raise Conflict(_refusal(standing, of_run))
    before = await verbs.read(database, Keyring.of(settings), standing.pipeline_id)
    async with quota_events.told(database, tenant), database.transaction() as conn:
        limits = await quotas.lock(conn, tenant)
        if await verbs.reopen(conn, tenant.tenant_id, request_id, before.run) is None:
            raise Conflict("The pipeline was changed at this moment; try again")
        again = await verbs.begin_run(conn, before)
        if not again and before.state == BatchState.COMPLETED:
            raise Conflict("Every item has an answer, or an error from its beginning; nothing to retry")
        await _queue(conn, settings, catalogue, before, again)
        for stage in await reads.stages(conn, before.pipeline_id):
            await files.assign_output_files(conn, tenant.tenant_id, stage.request_id)
        count = sum(len(seqs) for each in again for seqs, _ in each.items.values())
        terms = {"run": before.run}, {"run": before.run + 1, "items": count}
        target = ids.format_id(request_id)
        await log.record(conn, Record(Act.PIPELINE_RETRY, target, tenant.account_id, before=terms[0], after=terms[1]))
        await quotas.check_queued(conn, tenant, limits)
        await events.queued_again(conn, await lifecycle.told(conn, before.pipeline_id))
        ready = await batch_state.ready_chunks_of(conn, before.pipeline_id)
    wakes.notify(ready)
    return count


def _refusal(standing: verbs.Standing, of_run: int | None) -> str:
    if standing.shredded:
        return "Contents of the pipeline were deleted; nothing to retry"
    if standing.state not in PIPELINE.final():
        return f"The pipeline is {standing.state}: cancel it or wait for its end, then retry what remains"
    return f"The pipeline is in run {standing.run}, not {of_run}"


async def _queue(
    conn: Connection, settings: Settings, catalogue: Catalogue, before: Running, again: list[Again]
) -> None:
    """Queue the requests that run again. Raises ModelUnknown, BudgetsChanged."""
    [(deadline,)] = await (await conn.execute(sql.DEADLINE, {"pipeline_id": before.pipeline_id})).fetchall()
    found: list[tuple[Again, Part]] = []
    for each in again:
        parts = await requeueing.cut_again(conn, settings, catalogue, each.batch, each.items)
        found += [(each, part) for part in parts]
    found.sort(key=lambda one: (one[1].pool_id, one[0].number))  # the order in which pools are locked
    for each, part in found:
        due = deadline - timedelta(seconds=depths(before.flow)[each.number])
        owner = each.batch.batch_id, each.batch.run, before.tenant_id, part.pool_id
        await ingest.write_chunks(conn, owner, part.chunks, due)
    for _, part in found:
        await part.look.check(conn)
