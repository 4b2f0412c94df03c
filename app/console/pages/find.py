"""Find: any id, name or tag, by at most five look-ups of keys. One hit opens its page."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from app.batches import lookups
from app.console.page import whole
from app.console.parts import parts_of, viewer_of
from app.console.views import find


async def show(request: Request) -> Response:
    """What was found; the page itself if it is the only one."""
    parts, viewer = parts_of(request), viewer_of(request)
    asked = request.query_params.get("q", "").strip()[: lookups.LONGEST]
    async with parts.reader.relaxed() as conn:
        found = find.hits(*await lookups.find(conn, viewer.tenant_id, asked))
    if len(found) == 1:
        return RedirectResponse(found[0].href, 303)
    return await whole(request, "find", find.view(asked, found))


ROUTES = (Route(find.PATH, show, name="find"),)
