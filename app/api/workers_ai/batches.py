"""`…/ai/batches`: list batches, show one, read its results; pause, resume, cancel, retry. Workers AI has no such routes."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Response

from app import places
from app.api import body, submit_params
from app.api.deps import Caller, Parts, PartsDep
from app.api.envelope import success
from app.api.response_headers import COMPLETE
from app.api.streams import streamed
from app.api.workers_ai import batch_views, results
from app.api.workers_ai.listing_filters import BatchListQuery, ResultQuery, filters
from app.batches import lifecycle, listing, refused_batches, shredding
from app.errors import NotFound
from app.tenants.service import Tenant

router = APIRouter(prefix="/ai/batches")


def _parsed(request_id: str) -> UUID:
    parsed = submit_params.batch_id(request_id)
    if parsed is None:
        raise NotFound(batch_views.MISSING)
    return parsed


BatchId = Annotated[UUID, Depends(_parsed)]


@router.get("")
async def listed(tenant: Caller, parts: PartsDep, query: Annotated[BatchListQuery, Query()]) -> Response:
    """The account's batches, newest first, including those of OpenAI's routes and those that were refused.

    The order is the same for every page; `result_info.cursor` is null on the last page.
    """
    after = places.parsed(query.after, submit_params.batch_id)
    positions, more = await listing.page(
        parts.database, tenant, filters(query, parts.catalogue), after=after, limit=query.limit
    )
    ids = [position.request_id for position in positions]
    shown = await batch_views.many(ids, tenant, parts)
    info = {"count": len(shown), "per_page": query.limit, "cursor": str(ids[-1]) if more else None}
    return success(shown, result_info=info)


@router.get("/{request_id}")
async def show(request_id: BatchId, tenant: Caller, parts: PartsDep) -> Response:
    """State, counts, usage, times, and the reasons for which items failed. The results have their own route."""
    return success(await batch_views.one(request_id, tenant, parts))


@router.get("/{request_id}/results")
async def read(
    request_id: BatchId,
    tenant: Caller,
    parts: PartsDep,
    query: Annotated[ResultQuery, Query()],
) -> Response:
    """The results, one item a line as in the poll's `responses`, in input order; also while the batch runs.

    Of a running batch these are the results up to the first item without one. Then `x-slackwater-complete` is false, and
    `after` skips the lines that were read before. For a batch that was refused: 400 and the reason, as for a poll.
    """
    why = await parts.polls.why(tenant.tenant_id, request_id)
    if why is None:
        raise await batch_views.not_run(request_id, tenant, parts)
    status, skip = why.status, query.after if query.failed else 0
    pages = batch_views.pages(status, parts, tenant, after=query.after - skip)
    lines = results.lines(status, pages, parts.catalogue, only_failed=query.failed, skip=skip)
    headers = {COMPLETE: "true" if status.finalized_at is not None else "false"}
    return await streamed(lines, headers=headers, media_type=body.NDJSON)


@router.post("/{request_id}/retry")
async def retry(
    request_id: BatchId, tenant: Caller, parts: PartsDep, run: Annotated[int | None, Query(ge=1, le=32_000)] = None
) -> Response:
    """Run the failed, cancelled and expired items again. With `run`, the run to be retried, the call is safe to repeat."""
    await _check_ran(request_id, "retry", tenant, parts)
    await lifecycle.retry(parts.database, parts.settings, parts.queued_catalogue, tenant, request_id, run)
    return success(await batch_views.one(request_id, tenant, parts))


@router.delete("/{request_id}")
async def delete(request_id: BatchId, tenant: Caller, parts: PartsDep) -> Response:
    """Delete the requests and answers of a batch that has ended. Its counts, usage and events remain."""
    await _check_ran(request_id, "delete", tenant, parts)
    await shredding.shred(parts.database, parts.settings, tenant, request_id)
    return success(await batch_views.one(request_id, tenant, parts))


@router.post("/{request_id}/{verb}")
async def change_state(
    verb: Literal["pause", "resume", "cancel"], request_id: BatchId, tenant: Caller, parts: PartsDep
) -> Response:
    """Items without a worker stop at once; the others within a heartbeat: they are aborted (cancel) or finish (pause)."""
    await _check_ran(request_id, verb, tenant, parts)
    await lifecycle.change_state(parts.database, tenant, request_id, verb)
    return success(await batch_views.one(request_id, tenant, parts))


async def _check_ran(request_id: UUID, verb: str, tenant: Tenant, parts: Parts) -> None:
    """Raise Conflict for a batch that was refused: there is nothing to act on."""
    if await refused_batches.find(parts.database, tenant, [request_id]):
        raise refused_batches.nothing_to(verb)
