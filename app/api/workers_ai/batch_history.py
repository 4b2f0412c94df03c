"""`…/ai/batches/{request_id}/phases`, `…/errors`, `…/items`: what a batch waited for, of what its items failed, and each item."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from app import clock
from app.api.deps import Caller, Parts, PartsDep
from app.api.envelope import success
from app.api.parameter_limits import LARGEST
from app.api.workers_ai import batch_views
from app.api.workers_ai.batches import BatchId
from app.engines.outcome import ErrorClass
from app.errors import NotFound
from app.queue import failures, items, phases, reads
from app.queue.items import ItemFacts
from app.queue.reads import BatchStatus
from app.sealing.keyring import Keyring
from app.tenants.service import Tenant

router = APIRouter(prefix="/ai/batches/{request_id}")

MOST_ITEMS = 200


class ItemQuery(BaseModel):
    """The query of a batch's items."""

    model_config = ConfigDict(extra="forbid")

    failed: bool = Field(False, description="only items that failed in this run")
    error: ErrorClass | None = Field(
        None,
        json_schema_extra={"enum": [each.value for each in ErrorClass]},
        description="only items that failed with this class of error",
    )
    limit: int = Field(50, ge=1, le=MOST_ITEMS, description="items in one page")
    after: int = Field(0, ge=0, le=LARGEST, description="the `cursor` of the page before: begin with this item")


@router.get("/phases")
async def waited_for(request_id: BatchId, tenant: Caller, parts: PartsDep) -> Response:
    """What the batch has waited for, by the codes of `why`, from when until when; `running`: it did not wait. The latest 500, the
    first one first. A phase that is shorter than a few seconds may be missing.
    """
    status = await _status(request_id, tenant, parts)
    async with parts.database.relaxed() as conn:
        found = await phases.of_batch(conn, status.batch_id)
    shown = [{"code": each.code, "at": clock.iso(each.at), "until": clock.iso(each.until)} for each in found]
    return success(shown)


@router.get("/errors")
async def errors(request_id: BatchId, tenant: Caller, parts: PartsDep) -> Response:
    """How many items failed in this run, by class of error, with the first item of each class and its message."""
    status = await _status(request_id, tenant, parts)
    async with parts.database.relaxed() as conn:
        found = await failures.by_class(conn, Keyring.of(parts.settings), status.batch_id, status.run)
    shown = found if tenant.scope.reads_bodies else [each.without_words() for each in found]
    return success([asdict(each) for each in shown])


@router.get("/items")
async def listed(
    request_id: BatchId, tenant: Caller, parts: PartsDep, query: Annotated[ItemQuery, Query()]
) -> Response:
    """The batch's items in their order: state, tokens, attempts, engine, times, errors. The results have requests and answers."""
    status = await _status(request_id, tenant, parts)
    async with parts.database.relaxed() as conn:
        found = await items.page(
            conn,
            Keyring.of(parts.settings),
            status.batch_id,
            status.run,
            after=query.after,
            failed=query.failed,
            error=query.error and query.error.value,
            limit=query.limit + 1,
        )
    page = found[: query.limit]
    cursor = found[-1].seq if len(found) > len(page) else None
    return success(
        [view(each, tenant) for each in page],
        result_info={"count": len(page), "per_page": query.limit, "cursor": cursor},
    )


@router.get("/items/{seq}")
async def one(
    request_id: BatchId, tenant: Caller, parts: PartsDep, seq: Annotated[int, Path(ge=0, le=LARGEST)]
) -> Response:
    """One item: state, tokens, attempts, engine, times, error."""
    status = await _status(request_id, tenant, parts)
    async with parts.database.relaxed() as conn:
        found = await items.one(conn, Keyring.of(parts.settings), status.batch_id, status.run, seq)
    if found is None:
        raise NotFound(f"The batch has no item {seq}; it has {status.total}, from 0 on")
    return success(view(found, tenant))


async def _status(request_id: Any, tenant: Tenant, parts: Parts) -> BatchStatus:
    found = await reads.status(parts.database, tenant.tenant_id, request_id)
    if found is None:
        raise await batch_views.not_run(request_id, tenant, parts)
    return found


def view(item: ItemFacts, tenant: Tenant) -> dict[str, Any]:
    """An item in the form that callers read. A key that reads no bodies sees no message that may quote one."""
    item = item if tenant.scope.reads_bodies else item.without_words()
    unfinished = "with_worker" if item.leased else "waiting"
    state = unfinished if item.ok is None else "succeeded" if item.ok else "failed"
    facts = asdict(item) | {"finished_at": clock.iso(item.finished_at), "state": state}
    del facts["ok"], facts["leased"]
    return facts
