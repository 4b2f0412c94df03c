"""Find: any id, name or tag, by at most five look-ups of keys. One hit opens its page."""

from uuid import UUID

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from app.access.roles import Viewer
from app.console import queries_find as queries
from app.console.page import whole
from app.console.parts import Parts, parts_of, viewer_of
from app.console.views import batch_filter, find

_FEWEST = 2  # characters of a name
_DIGITS = 4  # of an id
_MOST = 200
_MOST_NUMBER = 2**63


async def show(request: Request) -> Response:
    """What was found; the page itself if it is the only one."""
    parts, viewer = parts_of(request), viewer_of(request)
    asked = request.query_params.get("q", "").strip()[:_MOST]
    found = await look(parts, viewer, asked) if len(asked) >= _FEWEST and "\x00" not in asked else []
    if len(found) == 1:
        return RedirectResponse(found[0].href, 303)
    return await whole(request, "find", find.view(asked, found))


async def look(parts: Parts, viewer: Viewer, asked: str) -> list[find.Hit]:
    """The things of this name, or whose id begins so."""
    ids = batch_filter.id_range(asked) if len(asked.replace("-", "")) >= _DIGITS else None
    batches: list[queries.FoundBatch] = []
    others: list[queries.Found] = []
    async with parts.reader.relaxed() as conn:
        if ids is not None:
            batches += await queries.batches_by_id(conn, viewer.tenant_id, ids)
        if ids is not None and ids[0] == ids[1]:
            others += await queries.hook(conn, viewer.tenant_id, UUID(int=ids[0].int))
        elif asked.isdecimal() and int(asked) < _MOST_NUMBER:
            others += await queries.delivery(conn, viewer.tenant_id, int(asked))
        others += await queries.named(conn, viewer.tenant_id, asked)
        batches += await queries.batches_by_name(conn, viewer.tenant_id, asked)
        tag = asked if await queries.tagged(conn, viewer.tenant_id, asked) else ""
    return find.hits(batches, others, tag)


ROUTES = (Route(find.PATH, show, name="find"),)
