"""The list of pipelines. Its address is the filter."""

from app import places
from app.access.roles import Viewer
from app.batches import id_prefix
from app.console.page import Page, Params
from app.console.parts import Parts
from app.console.views import pipeline_filter, pipelines
from app.pipelines import ids, listing
from app.pipelines.listing import Filter

_LIFECYCLES = {"open": "open", "ended": "ended"}


async def look(parts: Parts, viewer: Viewer, params: Params) -> pipelines.Seen:
    """The pipelines of one page. Raises BadInput."""
    wanted = pipeline_filter.parse(params.get("q", ""))
    id_range = id_prefix.id_range(wanted.text)
    chosen = Filter(
        tenant_id=viewer.tenant_id,
        account=wanted.account,
        lifecycle="" if wanted.state or wanted.text else _LIFECYCLES.get(params.get("view", "open"), ""),
        state=wanted.state,
        waits=wanted.waits,
        name="" if id_range else wanted.text,
        id_range=id_range,
        after=places.parsed(params.get("after"), ids.parse_id),
        before=places.parsed(params.get("before"), ids.parse_id, "before"),
    )
    async with parts.reader.relaxed() as conn:
        rows, more = await listing.page(conn, chosen)
        count = await listing.count_open(conn, viewer.tenant_id)
    return pipelines.Seen(rows, more, count, wanted)


PAGE = Page(
    "pipelines",
    pipeline_filter.PATH,
    look,
    lambda seen, viewer, params, now: pipelines.view(seen, params, now) | {"one_account": bool(viewer.account)},
    regions=("top", "list"),
    params=("view", "q", "after", "before"),
)
