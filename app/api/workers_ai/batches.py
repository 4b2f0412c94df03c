"""`…/ai/batches/{request_id}`: what Workers AI has no call for: look at a batch, pause, resume, cancel, retry it."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Response

from app.api import submits
from app.api.deps import Caller, Parts, PartsDep
from app.api.envelope import success
from app.api.workers_ai import results
from app.batches import lifecycle
from app.errors import NotFound
from app.tenants.service import Tenant

router = APIRouter(prefix="/ai/batches/{request_id}")
_MISSING = "No batch with this request_id in this account"


def _parsed(request_id: str) -> UUID:
    parsed = submits.batch_id(request_id)
    if parsed is None:
        raise NotFound(_MISSING)
    return parsed


BatchId = Annotated[UUID, Depends(_parsed)]


@router.get("")
async def look(request_id: BatchId, tenant: Caller, parts: PartsDep) -> Response:
    """State, counts, usage and times; never the results, which the poll has."""
    return await _told(request_id, tenant, parts)


@router.post("/retry")
async def retry(
    request_id: BatchId, tenant: Caller, parts: PartsDep, run: Annotated[int | None, Query(ge=1, le=32_000)] = None
) -> Response:
    """Run what failed, was cancelled or has expired once more. `run`, the run to be retried, makes it safe to repeat."""
    await lifecycle.retry(parts.database, parts.settings, parts.catalogue, tenant, request_id, run)
    return await _told(request_id, tenant, parts)


@router.post("/{verb}")
async def halt(
    verb: Literal["pause", "resume", "cancel"], request_id: BatchId, tenant: Caller, parts: PartsDep
) -> Response:
    """What no worker holds stops at once, the rest within a heartbeat: aborted (cancel), or left to end (pause)."""
    await lifecycle.halt(parts.database, tenant, request_id, verb)
    return await _told(request_id, tenant, parts)


async def _told(request_id: UUID, tenant: Tenant, parts: Parts) -> Response:
    found = await parts.polls.why(tenant.tenant_id, request_id)
    if found is None:
        raise NotFound(_MISSING)
    model = parts.catalogue.resolve(found.status.model)
    return success(results.overview(found, model.price if model else None))
