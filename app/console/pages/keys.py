"""API keys: last use, limits, making and revoking them. An admin of the account makes one, and sees its secret once."""

from collections.abc import Mapping
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from app import clock, places
from app.access.roles import Viewer
from app.audit.acts import Act
from app.console import forms
from app.console.page import Page, Params, whole
from app.console.pages.acting import attempted
from app.console.pages.actions import account_of, refuse
from app.console.parts import Parts, parts_of, viewer_of
from app.console.views import keys, new_key
from app.crypto import secret_key
from app.errors import BadInput, Conflict, NotFound
from app.sentences import ended
from app.tenants import key_list
from app.tenants import service as tenants
from app.tenants.api_key import ApiKey
from app.tenants.rate_limits import NO_LIMITS, in_force
from app.tenants.service import Tenant

_NOTHING: Mapping[str, str] = MappingProxyType({})
_MAKE = "make a key"


async def look(parts: Parts, viewer: Viewer, params: Params) -> keys.Seen:
    """A page of keys. Raises BadInput."""
    view = params.get("view", "live") if params.get("view", "live") in key_list.VIEWS else "live"
    after = places.read(params.get("after"), key_list.parse_id)
    async with parts.reader.relaxed() as conn:
        rows, more = await key_list.keys(conn, viewer.tenant_id, view, params.get("q") or None, after)
        found = await key_list.summary(conn, viewer.tenant_id)
    settings = parts.settings
    usual = in_force(NO_LIMITS, settings.key_requests_per_minute, settings.key_tokens_per_minute)
    return keys.Seen(rows, more, found, usual)


async def ask(request: Request) -> Response:
    """The form for a new key."""
    return await _form(request, account_of(viewer_of(request), _MAKE))


async def _form(
    request: Request, tenant: Tenant, given: Mapping[str, str] = _NOTHING, error: BadInput | None = None
) -> Response:
    problem = ended(error.message) if error else ""
    context = new_key.view(given, problem, tenant.account_id, parts_of(request).catalogue)
    return await whole(request, "key_new", context, active=keys.PATH, status=error.status if error else 200)


async def create(request: Request) -> Response:
    """Make a key, and show it once. What cannot be made is told beside the form, with what was filled in."""
    parts, viewer = parts_of(request), viewer_of(request)
    tenant = account_of(viewer, _MAKE)
    given = {name: str(value).strip() for name, value in (await forms.read(request)).items()}
    try:
        terms = new_key.terms(given, parts.catalogue, clock.now())
    except BadInput as error:
        return await _form(request, tenant, given, error)

    async def verb() -> ApiKey:
        async with parts.database.durable() as conn:
            return await tenants.create_key(
                conn,
                secret_key(parts.settings),
                tenant.account_id,
                terms.name,
                terms.lifetime,
                terms.limits,
                terms.pins,
                terms.scope,
                viewer.subject,
            )

    made = await attempted(parts, viewer, Act.KEY_CREATE, terms.name, tenant.account_id, verb)
    context = {
        "title": f"The key {terms.name}",
        "words": f"Programs of {tenant.account_id} send it as their API key. Its id is {made.key_id}; that is no secret.",
        "secrets": [("key", str(made))],
        "back": keys.PATH,
    }
    return await whole(request, "secret", context, active=keys.PATH)


async def revoke(request: Request) -> Response:
    """Revoke a key."""
    parts, viewer, key_id = parts_of(request), viewer_of(request), str(request.path_params["key_id"])
    async with parts.reader.relaxed() as conn:
        row = await key_list.key(conn, viewer.tenant_id, key_id)
    if row is None:
        raise NotFound("There is no such key")
    if not viewer.role.acts:
        raise refuse(viewer, "revoke a key")

    async def verb() -> None:
        async with parts.database.durable() as conn:
            if not await tenants.revoke_key(conn, row.key_id):
                raise Conflict("The key is revoked already")

    await attempted(parts, viewer, Act.KEY_REVOKE, row.key_id, row.account, verb)
    return RedirectResponse(f"{keys.PATH}?did=key-revoked", 303)


PAGE = Page("keys", keys.PATH, look, keys.view, regions=("top", "list"), params=("view", "q", "after"))
ROUTES = (
    Route(new_key.PATH, ask),
    Route(new_key.PATH, create, methods=["POST"]),
    Route(f"{keys.PATH}/{{key_id}}/revoke", revoke, methods=["POST"]),
)
