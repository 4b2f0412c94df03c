"""The list of batches. Its address is the filter."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from app import places
from app.access.roles import Viewer
from app.batches import id_prefix, why_chain
from app.batches.why_chain import MOST_TOGETHER, Why
from app.console import forms, queries, saved_views
from app.console.page import Page, Params
from app.console.parts import Parts, parts_of, viewer_of
from app.console.queries import BatchFilter, BatchRow
from app.console.views import batch_filter, batches
from app.console.views.batch_filter import Wanted
from app.queue import reads

_LIFECYCLES = {"open": "open", "ended": "ended"}
_YEAR = 365 * 86_400


async def look(parts: Parts, viewer: Viewer, params: Params) -> batches.Seen:
    """The batches of one page, and why the open ones of them wait. Raises BadInput."""
    wanted = batch_filter.parse(params.get("q", ""))
    chosen = chosen_by(viewer, wanted, params)
    async with parts.reader.relaxed() as conn:
        rows, more = await queries.batches(conn, chosen)
        counts = await queries.rail_counts(conn, viewer.tenant_id)
    whys = await explained(parts, rows)
    return batches.Seen(rows, whys, more, counts.open_batches, wanted, parts.catalogue)


def chosen_by(viewer: Viewer, wanted: Wanted, params: Params) -> BatchFilter:
    """The batches that the address of the list names. Raises BadInput."""
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
        after=places.read(params.get("after"), UUID),
        before=places.read(params.get("before"), UUID, "before"),
    )


async def explained(parts: Parts, rows: Sequence[BatchRow]) -> dict[UUID, Why]:
    """Why each open batch of these waits, or that it runs."""
    asked = [(row.tenant_id, row.request_id) for row in rows if row.finalized_at is None][:MOST_TOGETHER]
    found = await reads.snapshots(parts.reader, asked) if asked else []
    whys = [await why_chain.explained(parts.reader, *sight) for sight in found if sight is not None]
    return {why.status.request_id: why for why in whys}


def own(request: Request, context: Mapping[str, Any]) -> dict[str, Any]:
    """The saved views of this reader, as tabs beside those that everybody has."""
    saved = saved_views.read(request.cookies.get(saved_views.cookie_name(viewer_of(request)), ""))
    return batches.with_saved(saved, context)


async def save_view(request: Request) -> Response:
    """Save the filter under a name, or remove one, and show the list again. Raises BadInput."""
    parts, viewer = parts_of(request), viewer_of(request)
    form = {name: str(value) for name, value in (await forms.read(request)).items()}
    name = saved_views.cookie_name(viewer)
    saved = saved_views.read(request.cookies.get(name, ""))
    chosen, q = form.get("view", "open"), form.get("q", "")
    batch_filter.parse(q)
    if removed := form.get("remove"):
        saved = saved_views.without(saved, removed)
    else:
        saved = saved_views.added(saved, form.get("name", ""), chosen if chosen in batch_filter.VIEWS else "open", q)
    view = "" if chosen == "open" or removed else chosen
    did = "view-removed" if removed else "view-saved"
    answer = RedirectResponse(batch_filter.address(batches.PATH, view=view, q="" if removed else q, did=did), 303)
    answer.set_cookie(
        name,
        saved_views.write(saved),
        max_age=_YEAR,
        path=batches.PATH,
        secure=parts.secure,
        httponly=True,
        samesite="strict",
    )
    return answer


ROUTES = (Route(f"{batches.PATH}/views", save_view, methods=["POST"]),)
PAGE = Page(
    "batches",
    "/console/batches",
    look,
    lambda seen, viewer, params, now: batches.view(seen, params, now) | {"one_account": bool(viewer.account)},
    regions=("top", "list"),
    params=("view", "q", "after", "before"),
    own=own,
)
