"""One batch: does it run, what holds it up, when will it be done, what has failed."""

from datetime import datetime
from uuid import UUID

from starlette.requests import Request

from app.access.roles import Viewer
from app.console import queries, queries_items
from app.console.page import Page, Params
from app.console.parts import Parts
from app.console.queries import BatchRow
from app.console.views import batch
from app.db.pool import Connection
from app.errors import NotFound
from app.pipelines import listing
from app.queue import failures, phases
from app.queue.phases import Phase
from app.sealing.keyring import Keyring
from app.tenants.service import Tenant

_SLOW_SECONDS = 5.0  # what changes slowly or costs more is read as often
_MOST_SEQ = 2**31 - 1


async def find(parts: Parts, viewer: Viewer, params: Params) -> BatchRow:
    """The batch that the address names. Raises NotFound: it does not exist, or is another account's."""
    try:
        request_id = UUID(params.get("batch_id", "").removeprefix("batch_"))
    except ValueError:
        raise NotFound("There is no such batch") from None
    async with parts.reader.relaxed() as conn:
        row = await queries.batch(conn, viewer.tenant_id, request_id)
    if row is None:
        raise NotFound("There is no such batch")
    return row


async def find_of(request: Request, parts: Parts, viewer: Viewer) -> BatchRow:
    """The batch that a request's path names. Raises NotFound."""
    return await find(parts, viewer, {"batch_id": str(request.path_params["batch_id"])})


def owner(row: BatchRow) -> Tenant:
    """The account of a batch, for the use cases."""
    return Tenant(row.tenant_id, row.account)


async def look(parts: Parts, viewer: Viewer, params: Params) -> batch.Seen:
    """The batch, its live part, and a page of its items."""
    row = await find(parts, viewer, params)
    why = await parts.polls.why(row.tenant_id, row.request_id) if row.finalized_at is None else None
    kind = params.get("items", "failed" if row.failed else "all")
    kind = kind if kind in queries_items.LISTS else "all"
    after = int(params["from"]) if params.get("from", "").isdecimal() else 0

    async with parts.reader.relaxed() as conn:
        items = await parts.looks.at(
            ("items", row.batch_id, row.run, kind, after),
            lambda: queries_items.item_page(conn, Keyring.of(parts.settings), row, kind, min(after, _MOST_SEQ)),
            _SLOW_SECONDS if kind in queries_items.WALKED else 0.0,
        )
        pipeline = await listing.of_number(conn, row.pipeline_id) if row.pipeline_id is not None else None
        facts = await parts.looks.at(
            ("batch facts", row.batch_id, row.run, row.state, viewer.role.of_account),
            lambda: _slow(conn, Keyring.of(parts.settings), row),
            _SLOW_SECONDS,
        )
    return batch.Seen(row, why, items, *facts, parts.catalogue, pipeline)


async def _slow(
    conn: Connection, keyring: Keyring, row: BatchRow
) -> tuple[
    list[failures.FailureClass], queries.Submitted, list[queries.EventRow], tuple[list[datetime], int], list[Phase]
]:
    return (
        await failures.by_class(conn, keyring, row.batch_id, row.run) if row.failed else [],
        await queries.submitted(conn, row),
        await queries.events(conn, row.batch_id),
        await queries.progress(conn, row.batch_id, row.total),
        await phases.of_batch(conn, row.batch_id),
    )


PAGE = Page(
    "batch",
    "/console/batches/{batch_id}",
    look,
    batch.view,
    regions=("top", "acts", "figures", "run", "why", "items", "events"),
    params=("batch_id", "items", "from"),
    active="/console/batches",
)
