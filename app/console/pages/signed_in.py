"""Who is signed in to the console; a session can be ended at once."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from app import places
from app.access import sessions
from app.access.roles import Viewer
from app.access.sessions import SessionInfo
from app.console.page import Page, Params
from app.console.pages.actions import refuse
from app.console.parts import Parts, parts_of, viewer_of
from app.console.views import signed_in as view
from app.errors import NotFound


async def look(parts: Parts, viewer: Viewer, params: Params) -> list[SessionInfo]:
    """A page of the live sessions that the viewer may see, newest first. Raises BadInput."""
    before = places.parsed(params.get("before"), places.number, "before")
    async with parts.reader.relaxed() as conn:
        return await sessions.listing(conn, viewer.tenant_id, before=before, limit=view.SHOWN + 1)


async def revoke(request: Request) -> Response:
    """End a session at once."""
    parts, viewer, session_id = parts_of(request), viewer_of(request), int(request.path_params["session_id"])
    if not viewer.role.acts and session_id != viewer.session_id:
        raise refuse(viewer, "end other sessions")
    async with parts.database.transaction() as conn:
        if not await sessions.revoke(conn, session_id, viewer.tenant_id):
            raise NotFound("There is no such session")
    parts.looks.expire()
    return RedirectResponse("/console/access?did=revoked", 303)


PAGE = Page("access", view.PATH, look, view.view, regions=("list",), params=("before",))
ROUTES = (Route("/console/access/{session_id:int}/revoke", revoke, methods=["POST"]),)
