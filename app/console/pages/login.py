"""Sign in by a one-time link, sign out, choose a theme. There is no password. `login_oidc`: with an identity provider.

A link is opened by a button, since a preview of the link may fetch it, and what is fetched must change nothing.
"""

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from app.access import sessions
from app.audit.acts import Act
from app.console import forms
from app.console.guard import cookie_name
from app.console.page import THEME_COOKIE, THEMES, theme
from app.console.parts import Parts, parts_of, viewer_of

_YEAR = 365 * 86_400
_SPENT = "This link has been used, or it is older than five minutes."


async def ask(request: Request) -> Response:
    """What to do without a session; with a link, whom it signs in."""
    parts, token = parts_of(request), request.query_params.get("token", "")
    grant = None
    if token:
        async with parts.reader.relaxed() as conn:
            grant = await sessions.invited(conn, token)
    problem = _SPENT if token and grant is None else ""
    if problem:
        _refuse(parts)
    return page(request, parts, token=token, grant=grant, problem=problem, status=403 if problem else 200)


async def begin(request: Request) -> Response:
    """Use the link up, and open a session."""
    parts = parts_of(request)
    token = str((await forms.read(request)).get("token", ""))
    async with parts.database.transaction() as conn:
        session = await sessions.begin(conn, token)
    if session is None:
        _refuse(parts)
        return page(request, parts, token="", grant=None, problem=_SPENT, status=403)
    return signed_in(parts, session)


def _refuse(parts: Parts) -> None:
    parts.admission.audit.add(Act.SESSION_REFUSED, "one-time link", None, _SPENT)


def signed_in(parts: Parts, session: str) -> Response:
    """To the first page, with the cookie of a new session."""
    answer = RedirectResponse("/console/now", 303)
    answer.set_cookie(
        cookie_name(secure=parts.secure),
        session,
        max_age=int(sessions.LIFETIME.total_seconds()),
        path="/",
        secure=parts.secure,
        httponly=True,
        samesite="lax",
    )
    return answer


def page(request: Request, parts: Parts, *, status: int = 200, **context: object) -> Response:
    """The page without a session."""
    frame = {"nonce": request.scope["nonce"], "theme": theme(request), "oidc": parts.oidc.on}
    return HTMLResponse(parts.templates.render("login", context | frame), status)


async def end(request: Request) -> Response:
    """End the own session at once."""
    parts, viewer = parts_of(request), viewer_of(request)
    async with parts.database.transaction() as conn:
        await sessions.end(conn, viewer.session_id)
    answer = RedirectResponse("/console/login", 303)
    answer.delete_cookie(cookie_name(secure=parts.secure), path="/", secure=parts.secure, httponly=True)
    return answer


async def choose_theme(request: Request) -> Response:
    """Keep the theme that the reader chose in a cookie, and show the same page."""
    chosen = str((await forms.read(request)).get("theme", ""))
    back = request.headers.get("referer", "")
    own = parts_of(request).origin
    target = back.removeprefix(own) if back.startswith(f"{own}/console/") else "/console/now"
    answer = RedirectResponse(target, 303)
    if chosen in THEMES:
        secure = parts_of(request).secure
        answer.set_cookie(THEME_COOKIE, chosen, max_age=_YEAR, path="/console", secure=secure, samesite="lax")
    return answer


ROUTES = (
    Route("/console/login", ask),
    Route("/console/login", begin, methods=["POST"]),
    Route("/console/logout", end, methods=["POST"]),
    Route("/console/theme", choose_theme, methods=["POST"]),
)
