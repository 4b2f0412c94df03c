"""The common part of the routes that show batches: find one, describe it, read its results."""

from collections.abc import AsyncIterator
from dataclasses import asdict
from functools import partial
from typing import Any
from uuid import UUID

from app.api.deps import Parts
from app.api.workers_ai import results
from app.batches import refused_batches, shredding
from app.batches.refused_batches import RefusedBatch
from app.batches.restoring import restorer
from app.batches.why_chain import explained
from app.batches.withholding import withholder
from app.engines.catalogue import Catalogue
from app.errors import BadInput, NotFound
from app.queue import failures, reads
from app.queue.reads import BatchStatus, ItemResult
from app.sealing.keyring import Keyring
from app.storage.store import Store
from app.tenants.service import Tenant

MISSING = "No batch with this request_id in this account"


async def one(request_id: UUID, tenant: Tenant, parts: Parts) -> dict[str, Any]:
    """A batch without its results, with the reasons of its failures. Raises NotFound."""
    why = await parts.polls.why(tenant.tenant_id, request_id)
    if why is None:
        return results.refusal(await refused(request_id, tenant, parts)) | {"failures": []}
    status, groups = why.status, []
    if status.failed:
        async with parts.database.relaxed() as conn:
            groups = await failures.grouped(conn, Keyring.of(parts.settings), status.batch_id, status.run)
        groups = groups if tenant.scope.reads_bodies else failures.by_code(groups)
    return results.overview(why, parts.catalogue) | {"failures": [asdict(each) for each in groups]}


async def many(request_ids: list[UUID], tenant: Tenant, parts: Parts) -> list[dict[str, Any]]:
    """The overviews of these batches, in their order, without those that were deleted in the meantime."""
    if not request_ids:
        return []
    sights = await reads.snapshots(parts.database, [(tenant.tenant_id, request_id) for request_id in request_ids])
    absent = [request_id for request_id, sight in zip(request_ids, sights, strict=True) if sight is None]
    others = await refused_batches.find(parts.database, tenant, absent) if absent else {}
    refusals = {request_id: results.refusal(batch) for request_id, batch in others.items()}
    whys = [await explained(parts.database, *sight) if sight else None for sight in sights]
    overviews = [results.overview(why, parts.catalogue) if why else None for why in whys]
    views = [overview or refusals.get(request_id) for request_id, overview in zip(request_ids, overviews, strict=True)]
    return [view for view in views if view is not None]


async def refused(request_id: UUID, tenant: Tenant, parts: Parts) -> RefusedBatch:
    """A batch that was refused because of its file. Raises NotFound where there is no such batch."""
    batches = await refused_batches.find(parts.database, tenant, [request_id])
    if request_id not in batches:
        raise NotFound(MISSING)
    return batches[request_id]


async def not_run(request_id: UUID, tenant: Tenant, parts: Parts) -> BadInput:
    """The error for a request for the results of a refused batch. Raises NotFound where there is no such batch."""
    problems = (await refused(request_id, tenant, parts)).problems or [{"message": "its file was invalid"}]
    return BadInput(f"The batch was refused, and none of its items ran: {problems[0]['message']}")


def pages(status: BatchStatus, parts: Parts, tenant: Tenant, after: int = 0) -> AsyncIterator[list[ItemResult]]:
    """A batch's results after the first `after` items. Those of embeddings include the items, which decide a result's shape.

    Raises NotFound for a batch whose contents were deleted.
    """
    if status.shredded_at is not None:
        raise shredding.gone(status.shredded_at)
    store, keyring = Store.of(parts.settings), Keyring.of(parts.settings)
    restoring = restorer(parts.secret_key, tenant)
    withholding = withholder(status.policy, status.request_id, partial(parts.admission.withheld, tenant.account_id))
    needed = _needs_items(status, parts.catalogue)
    found = reads.results(
        parts.database,
        status.batch_id,
        status.run,
        store=store,
        keyring=keyring,
        after=after,
        items=needed or (withholding is not None and withholding.needs_items),
        vaults=restoring is not None,
    )
    found = found if restoring is None else restoring.pages(status.batch_id, found)
    return found if withholding is None else withholding.pages(found, with_items=needed)


def _needs_items(status: BatchStatus, models: Catalogue) -> bool:
    model = models.resolve(status.model)
    return model is not None and model.task == "text-embeddings"
