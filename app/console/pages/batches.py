"""The list of batches. Its address is the filter."""

from collections.abc import Sequence
from uuid import UUID

from app.access.roles import Viewer
from app.batches import id_prefix
from app.batches.why_chain import MOST_TOGETHER, Why, explain
from app.console import queries
from app.console.page import Page, Params
from app.console.parts import Parts
from app.console.queries import BatchFilter, BatchRow
from app.console.views import batch_filter, batches
from app.console.views.batch_filter import Wanted
from app.queue import reads

_LIFECYCLES = {"open": "open", "ended": "ended"}


async def look(parts: Parts, viewer: Viewer, params: Params) -> batches.Seen:
    """The batches of one page, and why the open ones of them wait. Raises BadInput."""
    wanted = batch_filter.parse(params.get("q", ""))
    chosen = _filter(viewer, wanted, params)
    async with parts.reader.relaxed() as conn:
        rows, more = await queries.batches(conn, chosen)
        counts = await queries.rail_counts(conn, viewer.tenant_id)
    whys = await explained(parts, rows)
    return batches.Seen(rows, whys, more, counts.open_batches, wanted, parts.catalogue)


def _filter(viewer: Viewer, wanted: Wanted, params: Params) -> BatchFilter:
    view = params.get("view", "open")
    asks_state = bool(wanted.state or wanted.text)
    id_range = id_prefix.id_range(wanted.text)
    return BatchFilter(
        tenant_id=viewer.tenant_id,
        account=wanted.account,
        lifecycle="" if asks_state else _LIFECYCLES.get(view, ""),
        state=wanted.state,
        failed=view == "failures",
        model=wanted.model,
        tags=wanted.tags,
        meta=wanted.meta,
        waits=wanted.waits,
        error=wanted.error,
        name="" if id_range else wanted.text,
        id_range=id_range,
        after=batch_filter.at_cursor(params.get("after", "")),
        before=batch_filter.at_cursor(params.get("before", "")),
    )


async def explained(parts: Parts, rows: Sequence[BatchRow]) -> dict[UUID, Why]:
    """Why each open batch of these waits, or that it runs."""
    asked = [(row.tenant_id, row.request_id) for row in rows if row.finalized_at is None][:MOST_TOGETHER]
    found = await reads.snapshots(parts.reader, asked) if asked else []
    return {sight[0].request_id: explain(*sight) for sight in found if sight is not None}


PAGE = Page(
    "batches",
    "/console/batches",
    look,
    lambda seen, viewer, params, now: batches.view(seen, params, now) | {"one_account": bool(viewer.account)},
    regions=("top", "list"),
    params=("view", "q", "after", "before"),
)
