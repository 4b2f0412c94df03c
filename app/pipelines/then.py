"""Stages that follow a batch of OpenAI's API: `then` in its create. The caller gets the batch of the last stage.

The batch itself is the input. Each of its lines passes every stage, so each ends in a file of the last one.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from app import cells, off_loop
from app.admission.admission import Admission
from app.batches.openai import file_batches
from app.batches.openai.file_batches import FileBatch, NewFileBatch
from app.db.pool import Connection, Database
from app.engines.catalogue import Catalogue
from app.errors import BadInput, StageOfPipeline
from app.flows.definition import parse_then
from app.flows.stages import MOST_ITEMS
from app.pipelines import creation, drafting, lifecycle, models, reads, retrying, service, stored_flow
from app.pipelines.drafting import Input, Order
from app.pipelines.verbs import Verb
from app.queue import ingest
from app.queue.answer_lengths import UsualLength
from app.queue.bodies import BatchSeal
from app.queue.dependencies import FIELD
from app.queue.types import Kind
from app.settings import Settings
from app.tenants.service import Tenant

_ROOT = "then"


async def create(
    database: Database,
    settings: Settings,
    catalogue: Catalogue,
    tenant: Tenant,
    new: NewFileBatch,
    stages: Any,
    usual: UsualLength,
    begin: Callable[[], Admission],
) -> FileBatch:
    """Create a batch with these stages behind it. Returns the batch of the last one. `stages` None: it has none. `begin`: opens
    the admission of the stages.

    Raises BadInput, PolicyDenied, SensitiveFound.
    """
    if stages is None:
        return await file_batches.create(database, settings, catalogue, tenant, new, usual)
    if new.depends_on:
        message = f"{FIELD}: a batch with stages behind it cannot wait; use a pipeline whose input is the last of those batches"
        raise BadInput(message, param=FIELD)
    order = await _order(catalogue, tenant, new, stages, usual, begin())
    last = {"kind": Kind.BATCH, "metadata": new.labels.metadata}
    draft = await drafting.drafted(database, settings, order, Input(0, cells.new_id()), None, last)
    new = replace(new, then=order.given)

    async def follow(conn: Connection, batch: ingest.NewBatch, seal: BatchSeal | None) -> None:
        if batch.total > MOST_ITEMS:
            message = (
                f"{_ROOT}: the batch has {batch.total:,} lines; with stages the most is {MOST_ITEMS:,}: send several"
            )
            raise BadInput(message, param=_ROOT)
        definition = order.given if seal is None else stored_flow.sealed(seal, order.given)
        made = replace(draft, pipeline_id=batch.batch_id, request_id=batch.request_id, definition=definition)
        await creation.follow(conn, made)
        end = made.stages[-1]
        await file_batches.register_batch(conn, tenant, new, end.request_id, end.batch_id, None)
        await service.created(conn, tenant, made)

    first = await file_batches.create(database, settings, catalogue, tenant, new, usual, follow)
    return await _last(database, tenant, first)


async def _order(
    catalogue: Catalogue, tenant: Tenant, new: NewFileBatch, stages: Any, usual: UsualLength, admission: Admission
) -> Order:
    flow = await asyncio.to_thread(parse_then, stages, new.endpoint)
    found = models.resolved(flow, catalogue, root=_ROOT)
    given = stored_flow.of_then(stages, new.endpoint)
    if (redaction := admission.redaction) is not None:
        await off_loop.searched(given, redaction.check, _ROOT, given.decode())
    await asyncio.to_thread(models.check_requests, flow, found, admission, usual, root=_ROOT)
    return Order(tenant, flow, given, found, new.labels, admission, new.deadline_seconds)


async def _last(database: Database, tenant: Tenant, first: FileBatch) -> FileBatch:
    """The batch of the last stage. A batch that was refused because of its file has none."""
    if first.status is None:
        return first
    async with database.relaxed() as conn:
        stages = await reads.stages(conn, first.status.batch_id)
    return await file_batches.get(database, tenant, stages[-1].request_id)


async def retry(
    database: Database, settings: Settings, catalogue: Catalogue, tenant: Tenant, request_id: UUID
) -> FileBatch:
    """Run what has no answer again; of a batch with stages behind it, of all of them. Raises as `apply_verb`."""
    try:
        return await file_batches.retry(database, settings, catalogue, tenant, request_id)
    except StageOfPipeline:
        pipeline = await reads.of_batch(database, tenant, request_id)
        if pipeline is None or not pipeline.begins_with_batch:
            raise
        await retrying.retry(database, settings, catalogue, tenant, pipeline.request_id, None)
        return await file_batches.get(database, tenant, request_id)


async def apply_verb(database: Database, tenant: Tenant, request_id: UUID, verb: Verb) -> FileBatch:
    """Pause, resume or cancel a batch; of one with stages behind it, all of them. Raises NotFound, Conflict, StageOfPipeline."""
    try:
        return await file_batches.apply_verb(database, tenant, request_id, verb)
    except StageOfPipeline:
        pipeline = await reads.of_batch(database, tenant, request_id)
        if pipeline is None or not pipeline.begins_with_batch:
            raise
        await lifecycle.change_state(database, tenant, pipeline.request_id, verb)
        return await file_batches.get(database, tenant, request_id)
