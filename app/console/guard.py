"""Stands before every page: who asks, from which page of ours, and with which headers the answer leaves. A fault becomes a page.

A session is looked up for each request, so that a revoked one ends at once.
"""

import secrets
from urllib.parse import quote
from uuid import uuid4

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access import sessions
from app.access.roles import Viewer
from app.api_url import known_url
from app.audit import actor
from app.audit.actor import Actor
from app.audit.acts import Act
from app.console import csp, error_pages
from app.console.parts import Parts
from app.db.transient_errors import TRANSIENT
from app.openai_codes import OpenAICode

SAFE = frozenset({"GET", "HEAD"})
OPEN = ("/console/static/", "/console/login", "/console/health")  # what needs no session
_FOREIGN = "This request does not come from a page of the console. Open the page again and repeat it."


def cookie_name(*, secure: bool) -> str:
    """The cookie of the session. Browsers accept the prefix only by https, where it binds the cookie to this host."""
    return "__Host-sw" if secure else "sw"


class Guard:
    """An ASGI middleware. It does not touch bodies, so streams pass without delay."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        nonce = scope["nonce"] = secrets.token_urlsafe(16)
        name = scope["request_id"] = uuid4().hex
        headers = {error_pages.REQUEST_ID: name, **csp.headers(nonce)}
        added = [(name.encode(), value.encode()) for name, value in headers.items()]
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                names = {name for name, _ in message["headers"]}
                private = [] if b"cache-control" in names else [(b"cache-control", b"no-store")]
                message["headers"] = [*message["headers"], *added, *private]
            await send(message)

        with actor.acting(actor.stranger(name)):
            try:
                await self._answer(scope, receive, sending)
            except Exception as error:
                if begun:
                    raise
                page = await error_pages.failed(Request(scope), error)
                await page(scope, receive, sending)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = await _refusal(scope)
        if (viewer := scope.get("viewer")) is not None:
            actor.enter(Actor(viewer.subject, str(viewer.role), viewer.session_id, scope["request_id"]))
        await (refusal or self._app)(scope, receive, send)


async def _refusal(scope: Scope) -> Response | None:
    """The answer to a request that may not pass; None: it may, and `viewer` is in its scope."""
    request, parts = Request(scope), scope["app"].state.parts
    if request.url.path != "/" and not f"{request.url.path}/".startswith("/console/"):
        return _not_the_api(known_url(parts.settings))
    if request.method not in SAFE and not _from_our_page(request, parts):
        parts.admission.audit.add(Act.ACCESS_REFUSED, "page of another site", None, _FOREIGN)
        return error_pages.alone(request, 403, _FOREIGN)
    if request.url.path.startswith(OPEN):
        return None
    try:
        viewer = await signed_in(parts, request)
    except TRANSIENT:
        return error_pages.alone(request, 503, error_pages.AWAY)
    if viewer is None:
        return _sign_in(request)
    await parts.freshen()
    scope["viewer"] = viewer
    return None


def _not_the_api(url: str) -> Response:
    """The answer to a client of the API, in the form of its errors. A browser asks for nothing outside of the console."""
    message = f"Here is Slackwater's console; its API is at {url}/v1. Set the client's base_url to that."
    error = {"message": message, "type": "not_found_error", "param": None, "code": OpenAICode.UNKNOWN_URL}
    return JSONResponse({"error": error}, 404, {"x-should-retry": "false"})


def _from_our_page(request: Request, parts: Parts) -> bool:
    headers = Headers(scope=request.scope)
    return csp.same_origin(headers.get("sec-fetch-site"), headers.get("origin"), parts.origin)


async def signed_in(parts: Parts, request: Request) -> Viewer | None:
    """Who holds the session of this request's cookie. None: there is none, or it has ended."""
    token = request.cookies.get(cookie_name(secure=parts.secure))
    if not token:
        return None
    async with parts.reader.relaxed() as conn:
        found = await sessions.find(conn, token)
    if found is None:
        return None
    viewer, due = found
    if due:
        async with parts.database.relaxed() as conn:
            await sessions.note_use(conn, viewer.session_id)
    return viewer


def _sign_in(request: Request) -> Response:
    if request.method in SAFE and "text/event-stream" not in request.headers.get("accept", ""):
        return RedirectResponse(f"/console/login?to={quote(request.url.path)}", 303)
    return error_pages.alone(request, 401, "Your session has ended. Sign in again.")
