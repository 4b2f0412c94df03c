"""Sign in with the identity provider: send the browser there, and open a session when it returns."""

from dataclasses import replace

import structlog
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from app.access import sessions
from app.access.oidc import ATTEMPT_SECONDS, OidcError, Person
from app.access.roles import Grant
from app.audit import actor
from app.audit.acts import Act
from app.console.pages import login
from app.console.parts import Parts, parts_of
from app.errors import AccountUnknown
from app.tenants import service as tenants

START, BACK = "/console/login/oidc", "/console/login/oidc/callback"
log = structlog.get_logger("console")


async def start(request: Request) -> Response:
    """Send the browser to the identity provider."""
    parts = parts_of(request)
    try:
        place, cookie = await parts.oidc.begin(parts.origin + BACK)
    except OidcError as error:
        return login.page(request, parts, grant=None, problem=str(error), status=503)
    answer = RedirectResponse(place, 303)
    # Lax, since the browser returns from another site.
    answer.set_cookie(
        _name(parts),
        cookie,
        max_age=int(ATTEMPT_SECONDS),
        path="/",
        secure=parts.secure,
        httponly=True,
        samesite="lax",
    )
    return answer


async def back(request: Request) -> Response:
    """Open a session for whom the identity provider has signed in, if a rule gives them a role."""
    parts = parts_of(request)
    try:
        person = await parts.oidc.end(
            request.cookies.get(_name(parts), ""), dict(request.query_params), parts.origin + BACK
        )
        session = await _open(parts, person)
    except OidcError as error:
        log.warning("console.sign_in_refused", reason=str(error))
        with actor.acting(replace(actor.current(), who=error.subject or actor.UNKNOWN)):
            parts.admission.audit.add(Act.SESSION_REFUSED, "identity provider", None, str(error))
        answer = login.page(request, parts, grant=None, problem=str(error), status=403)
    else:
        answer = login.signed_in(parts, session)
    answer.delete_cookie(_name(parts), path="/", secure=parts.secure, httponly=True)
    return answer


async def _open(parts: Parts, person: Person) -> str:
    async with parts.database.transaction() as conn:
        account = person.rule.account
        try:
            tenant_id = await tenants.find_tenant(conn, account) if account else None
        except AccountUnknown as error:
            raise OidcError(error.message, person.subject) from None
        return await sessions.open_session(conn, Grant(person.subject, person.rule.role, tenant_id))


def _name(parts: Parts) -> str:
    """The cookie of one sign-in, bound to this host as that of a session is."""
    return "__Host-sw-oidc" if parts.secure else "sw-oidc"


ROUTES = (Route(START, start), Route(BACK, back))
