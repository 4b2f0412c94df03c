"""What the routes that show batches share: find one, tell all about it, read its results."""

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any
from uuid import UUID

from app.api.deps import Parts
from app.api.workers_ai import results
from app.batches.openai import file_batches
from app.batches.openai.file_batches import FileBatch
from app.batches.why import explain
from app.engines.catalogue import Catalogue
from app.errors import BadInput, NotFound
from app.queue import failures, reads
from app.queue.reads import BatchStatus, ItemResult
from app.storage.store import Store
from app.tenants.service import Tenant

MISSING = "No batch with this request_id in this account"


async def one(request_id: UUID, tenant: Tenant, parts: Parts) -> dict[str, Any]:
    """Everything about a batch but its results, the reasons of its failures included. Raises NotFound."""
    found = await parts.polls.why(tenant.tenant_id, request_id)
    if found is None:
        return results.refusal(await refused(request_id, tenant, parts)) | {"failures": []}
    status, groups = found.status, []
    if status.failed:
        async with parts.database.relaxed() as conn:
            groups = await failures.grouped(conn, status.batch_id, status.run)
    return results.overview(found, parts.catalogue) | {"failures": [asdict(each) for each in groups]}


async def many(request_ids: list[UUID], tenant: Tenant, parts: Parts) -> list[dict[str, Any]]:
    """The overviews of these batches, in their order; one that has gone meanwhile is left out."""
    if not request_ids:
        return []
    sights = await reads.snapshots(parts.database, [(tenant.tenant_id, request_id) for request_id in request_ids])
    absent = [request_id for request_id, sight in zip(request_ids, sights, strict=True) if sight is None]
    others = await file_batches.refused(parts.database, tenant, absent) if absent else {}
    known = [results.overview(explain(*sight), parts.catalogue) if sight else None for sight in sights]
    refusals = {request_id: results.refusal(batch) for request_id, batch in others.items()}
    shown = [told or refusals.get(request_id) for request_id, told in zip(request_ids, known, strict=True)]
    return [each for each in shown if each is not None]


async def refused(request_id: UUID, tenant: Tenant, parts: Parts) -> FileBatch:
    """A batch that was refused for its file. Raises NotFound where there is no batch at all."""
    found = await file_batches.refused(parts.database, tenant, [request_id])
    if request_id not in found:
        raise NotFound(MISSING)
    return found[request_id]


async def not_run(request_id: UUID, tenant: Tenant, parts: Parts) -> BadInput:
    """The answer to whoever asks for the results of a batch that was refused. Raises NotFound where there is no batch at all."""
    problems = (await refused(request_id, tenant, parts)).problems or [{"message": "its file was not fit"}]
    return BadInput(f"The batch was refused, nothing of it was run: {problems[0]['message']}")


def pages(status: BatchStatus, parts: Parts, after: int = 0) -> AsyncIterator[list[ItemResult]]:
    """A batch's results from the item `after` on, with what was asked where the results cannot be told without."""
    store = Store.of(parts.settings)
    items = _needs_items(status, parts.catalogue)
    return reads.results(parts.database, status.batch_id, status.run, store=store, after=after, items=items)


def _needs_items(status: BatchStatus, models: Catalogue) -> bool:
    model = models.resolve(status.model)
    return model is not None and model.task == "text-embeddings"
