"""Delete what a final batch contains, at the wish of its owner: the batch, or the last of its output files, or the pipeline of
which it is a stage (`app.pipelines.shredding`). What stays: its counts, its usage, its hash, its events.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from uuid import UUID

from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record
from app.db.pool import Connection, Database
from app.errors import Conflict, NotFound, StorageError
from app.events import BatchData, Counts, EventKind
from app.files import service as files
from app.files.service import File
from app.quantities import moment
from app.queue import shredding
from app.queue.removal import EndedBatch
from app.queue.shredding import FoundBatch
from app.settings import Settings
from app.states import BATCH
from app.storage.store import Store
from app.tenants.service import Tenant
from app.webhooks import emitter


async def shred(database: Database, settings: Settings, tenant: Tenant, request_id: UUID) -> datetime:
    """Delete the contents of a final batch. Returns when it was done first; a repeated call has no effect.

    Once it returns, and after a crash at any point after the commit, nothing of the batch can be read. Raises NotFound, and
    Conflict while the batch is not final.
    """
    async with database.transaction() as conn:
        found = await shredding.find(conn, tenant.tenant_id, request_id)
        if found is None:
            raise NotFound("No batch with this request_id in this account")
        if found.pipeline_id is not None:
            raise Conflict(
                "The batch is a stage of a pipeline: delete the pipeline, with the contents of all of its stages"
            )
        if found.shredded_at is not None:
            return found.shredded_at
        moment = await _mark(conn, tenant, found)
    await clean(database, settings, found)
    return moment


async def delete_output(database: Database, settings: Settings, tenant: Tenant, file: File) -> None:
    """Delete an output or error file. Once a batch that has ended has none left that can be read, this deletes its contents, too.

    Raises Conflict for the last file of a batch that is still being counted.
    """
    assert file.request_id is not None
    async with database.transaction() as conn:
        found = await shredding.find(
            conn, tenant.tenant_id, file.request_id
        )  # locked: of two deletions, one comes second
        others = await files.hide_output(conn, tenant, file)
        if found is None or others or found.shredded_at is not None or found.state not in BATCH.final():
            return
        if found.pipeline_id is not None:  # its contents go with the pipeline
            return
        await _mark(conn, tenant, found)
    await clean(database, settings, found)


async def mark_stages(conn: Connection, tenant: Tenant, request_ids: Sequence[UUID]) -> list[FoundBatch]:
    """Destroy the keys of all stages of a pipeline, and hide their contents. Returns those that `clean` has to see afterwards.

    Call in the transaction that records it. Raises Conflict unless all of them have ended.
    """
    stages = [await shredding.find(conn, tenant.tenant_id, request_id) for request_id in request_ids]
    found = [each for each in stages if each is not None and each.shredded_at is None]
    for each in found:
        await _hide(conn, tenant, each)
    return found


async def _mark(conn: Connection, tenant: Tenant, found: FoundBatch) -> datetime:
    """Destroy the key of a batch and hide its contents, with its event and audit row. Raises Conflict."""
    moment = await _hide(conn, tenant, found)
    before = {"state": str(found.state), "items": found.total}
    await log.record(conn, Record(Act.BATCH_SHRED, str(found.request_id), tenant.account_id, before=before))
    return moment


async def _hide(conn: Connection, tenant: Tenant, found: FoundBatch) -> datetime:
    if not found.over:
        still = f"is {found.state}" if found.finalized_at is None else "has ended, but is still being counted"
        raise Conflict(f"The batch {still}: cancel it or wait for its end, then delete it")
    moment = await shredding.mark(conn, found.batch_id)
    await emitter.emit(
        conn,
        tenant_id=tenant.tenant_id,
        kind=EventKind.BATCH_SHREDDED,
        model=found.model,
        batch_id=found.batch_id,
        run=found.run,
        data=BatchData(
            request_id=str(found.request_id),
            account_id=tenant.account_id,
            traceparent=found.traceparent,
            counts=Counts.of(found.total, found.ok, found.failed),
        ),
    )
    return moment


async def clean(database: Database, settings: Settings, found: FoundBatch) -> None:
    """Remove what is left of a batch whose contents are hidden."""
    with suppress(StorageError):  # a maintenance worker removes what is left
        await shredding.clean(database, Store.of(settings), EndedBatch(found.batch_id, found.total))


def gone(at: datetime) -> NotFound:
    """The error for a request for the contents of a batch that were deleted."""
    return NotFound(f"The contents of the batch were deleted on {moment(at)}; its counts and usage remain", status=410)
