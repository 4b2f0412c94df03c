"""`/operator/batches/{request_id}`: one batch of any account, as a key that reads no bodies sees it there."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from app.api.deps import PartsDep
from app.api.parameter_limits import LARGEST
from app.api.workers_ai import batch_history, batches, why
from app.api.workers_ai.batch_history import ItemQuery
from app.api.workers_ai.batches import BatchId
from app.batches import lookups
from app.errors import NotFound
from app.tenants import service as tenants
from app.tenants.key_scope import KeyRole, KeyScope
from app.tenants.service import Tenant

router = APIRouter(prefix="/batches/{request_id}")


async def _owner(request_id: BatchId, parts: PartsDep) -> Tenant:
    """The account of the batch, with the rights of its viewers. Raises NotFound."""
    async with parts.database.relaxed() as conn:
        found = await lookups.batches_by_id(conn, None, (request_id, request_id))
        if not found:
            raise NotFound(f"No batch {request_id}")
        account = found[0].account
        return Tenant(await tenants.find_tenant(conn, account), account, scope=KeyScope(KeyRole.VIEWER))


Owner = Annotated[Tenant, Depends(_owner)]


@router.get("")
async def show(request_id: BatchId, owner: Owner, parts: PartsDep) -> Response:
    """State, counts, usage and times of a batch."""
    return await batches.show(request_id, owner, parts)


@router.get("/why")
async def explain(
    request_id: BatchId, owner: Owner, parts: PartsDep, last: Annotated[int, Query(ge=0, le=why.MOST_DECISIONS)] = 8
) -> Response:
    """The chain of conditions between a batch and its end, and the latest decisions of its model's engines."""
    return await why.explain(request_id, owner, parts, last)


@router.get("/phases")
async def waited_for(request_id: BatchId, owner: Owner, parts: PartsDep) -> Response:
    """What a batch has waited for."""
    return await batch_history.waited_for(request_id, owner, parts)


@router.get("/errors")
async def errors(request_id: BatchId, owner: Owner, parts: PartsDep) -> Response:
    """How many items of a batch failed, by class of error, without messages that may quote a request."""
    return await batch_history.errors(request_id, owner, parts)


@router.get("/items")
async def listed(request_id: BatchId, owner: Owner, parts: PartsDep, query: Annotated[ItemQuery, Query()]) -> Response:
    """The items of a batch in their order: state, tokens, attempts, engine and times."""
    return await batch_history.listed(request_id, owner, parts, query)


@router.get("/items/{seq}")
async def one(
    request_id: BatchId, owner: Owner, parts: PartsDep, seq: Annotated[int, Path(ge=0, le=LARGEST)]
) -> Response:
    """One item of a batch: state, tokens, attempts, engine and times."""
    return await batch_history.one(request_id, owner, parts, seq)
