"""API keys: last use, limits, and revoking them. Keys are made on the command line, where their secret is shown."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from app.access.roles import Viewer
from app.audit.acts import Act
from app.console.page import Page, Params
from app.console.pages.acting import attempted
from app.console.pages.actions import refuse
from app.console.parts import Parts, parts_of, viewer_of
from app.console.views import keys
from app.errors import Conflict, NotFound
from app.tenants import key_list
from app.tenants import service as tenants
from app.tenants.rate_limits import NO_LIMITS, in_force


async def look(parts: Parts, viewer: Viewer, params: Params) -> keys.Seen:
    """A page of keys. Raises BadInput."""
    view = params.get("view", "live") if params.get("view", "live") in key_list.VIEWS else "live"
    after = key_list.at_place(params.get("after", ""))
    async with parts.reader.relaxed() as conn:
        rows, more = await key_list.keys(conn, viewer.tenant_id, view, params.get("q") or None, after)
        found = await key_list.summary(conn, viewer.tenant_id)
    settings = parts.settings
    usual = in_force(NO_LIMITS, settings.key_requests_per_minute, settings.key_tokens_per_minute)
    return keys.Seen(rows, more, found, usual)


async def revoke(request: Request) -> Response:
    """Revoke a key."""
    parts, viewer, key_id = parts_of(request), viewer_of(request), str(request.path_params["key_id"])
    async with parts.reader.relaxed() as conn:
        row = await key_list.key(conn, viewer.tenant_id, key_id)
    if row is None:
        raise NotFound("There is no such key", code=404)
    if not viewer.role.acts:
        raise refuse(viewer, "revoke a key")

    async def verb() -> None:
        async with parts.database.durable() as conn:
            if not await tenants.revoke_key(conn, row.key_id):
                raise Conflict("The key is revoked already")

    await attempted(parts, viewer, Act.KEY_REVOKE, row.key_id, row.account, verb)
    return RedirectResponse(f"{keys.PATH}?did=key-revoked", 303)


PAGE = Page("keys", keys.PATH, look, keys.view, regions=("top", "list"), params=("view", "q", "after"))
ROUTES = (Route(f"{keys.PATH}/{{key_id}}/revoke", revoke, methods=["POST"]),)
