"""`…/ai/batches`: what Workers AI has no call for: list batches, look at one, read its results; pause, resume, cancel, retry."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import StreamingResponse

from app.api import body, submit_params
from app.api.deps import Caller, Parts, PartsDep
from app.api.envelope import success
from app.api.response_headers import COMPLETE
from app.api.workers_ai import batch_views, results
from app.api.workers_ai.listing_filters import BatchListQuery, Reading, cursor, filters
from app.batches import lifecycle, listing
from app.batches.openai import file_batches
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
async def listed(tenant: Caller, parts: PartsDep, asked: Annotated[BatchListQuery, Query()]) -> Response:
    """The account's batches, newest first, those made by OpenAI's routes and those that were refused included.

    The order does not change while pages are turned; `result_info.cursor` is null on the last one.
    """
    after = cursor(asked.after) if asked.after is not None else None
    wanted = filters(asked, parts.catalogue)
    places, more = await listing.page(parts.database, tenant, wanted, after=after, limit=asked.limit)
    ids = [place.request_id for place in places]
    shown = await batch_views.many(ids, tenant, parts)
    info = {"count": len(shown), "per_page": asked.limit, "cursor": str(ids[-1]) if more else None}
    return success(shown, result_info=info)


@router.get("/{request_id}")
async def show(request_id: BatchId, tenant: Caller, parts: PartsDep) -> Response:
    """State, counts, usage, times, and why items failed, by reason; never the results, which have a route of their own."""
    return success(await batch_views.one(request_id, tenant, parts))


@router.get("/{request_id}/results")
async def read(
    request_id: BatchId,
    tenant: Caller,
    parts: PartsDep,
    asked: Annotated[Reading, Query()],
) -> Response:
    """The results, one item a line as the poll's `responses` have it, in input order; also while the batch runs.

    Then as far as all items have come to an end; `x-slackwater-complete: false` says that more is coming, and `after` goes on
    behind the lines that were read. Of a batch that was refused: 400 and the reason, as the poll.
    """
    found = await parts.polls.why(tenant.tenant_id, request_id)
    if found is None:
        raise await batch_views.not_run(request_id, tenant, parts)
    status, skip = found.status, asked.after if asked.failed else 0
    pages = batch_views.pages(status, parts, after=asked.after - skip)
    lines = results.lines(status, pages, parts.catalogue, only_failed=asked.failed, skip=skip)
    headers = {COMPLETE: "true" if status.finalized_at is not None else "false"}
    return StreamingResponse(lines, media_type=body.NDJSON, headers=headers)


@router.post("/{request_id}/retry")
async def retry(
    request_id: BatchId, tenant: Caller, parts: PartsDep, run: Annotated[int | None, Query(ge=1, le=32_000)] = None
) -> Response:
    """Run what failed, was cancelled or has expired once more. `run`, the run to be retried, makes it safe to repeat."""
    await _check_ran(request_id, "retry", tenant, parts)
    await lifecycle.retry(parts.database, parts.settings, parts.catalogue, tenant, request_id, run)
    return success(await batch_views.one(request_id, tenant, parts))


@router.post("/{request_id}/{verb}")
async def halt(
    verb: Literal["pause", "resume", "cancel"], request_id: BatchId, tenant: Caller, parts: PartsDep
) -> Response:
    """What no worker holds stops at once, the rest within a heartbeat: aborted (cancel), or left to end (pause)."""
    await _check_ran(request_id, verb, tenant, parts)
    await lifecycle.halt(parts.database, tenant, request_id, verb)
    return success(await batch_views.one(request_id, tenant, parts))


async def _check_ran(request_id: UUID, verb: str, tenant: Tenant, parts: Parts) -> None:
    """Raise Conflict for a batch that was refused, of which there is nothing to act on."""
    for batch in (await file_batches.refused(parts.database, tenant, [request_id])).values():
        file_batches.check_ran(batch, verb)
