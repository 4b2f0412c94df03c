"""The page that an error becomes: what went wrong, what to do, and the id under which the log and the audit log have it.

Somebody who is signed in keeps the rail. Where that cannot be drawn, as while the database is away, the page stands alone. What a
script of ours has asked for gets the words without a page.
"""

from http import HTTPStatus

import structlog
from psycopg import Error as DatabaseError
from psycopg_pool import PoolTimeout
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from app.audit.acts import Act
from app.causes import cause
from app.console import compression
from app.console.page import theme, whole
from app.console.parts import parts_of, viewer_of
from app.errors import SlackwaterError
from app.sentences import ended

REQUEST_ID = "x-request-id"
AWAY = "The database does not answer. Try again in a few seconds."
_NOT_THERE = "There is nothing here, or it is not yours to see."
_FAULT = "The console could not make this page. The operator finds the reason in the log."
_UNSURE = "It is not known whether what you asked for was done: look before you repeat it."
_TITLES = {
    403: "You may not do this",
    404: "Not found",
    405: "This address takes no such request",
    409: "That did not work",
    500: "This page has failed",
    503: "Not available at this moment",
}
_HEADERS = {503: {"retry-after": "2"}}
log = structlog.get_logger("console")


async def refused(request: Request, error: Exception) -> Response:
    """Of an error that we raised on purpose, or of an address that there is not."""
    status = error.status if isinstance(error, SlackwaterError) else getattr(error, "status_code", 500)
    if status == 404:
        message = _NOT_THERE
    else:
        message = ended(error.message if isinstance(error, SlackwaterError) else HTTPStatus(status).phrase)
    if status == 403 and "viewer" in request.scope:
        parts, viewer = parts_of(request), viewer_of(request)
        parts.admission.audit.add(Act.ACCESS_REFUSED, request.url.path, viewer.account, message)
    return await _page(request, status, message)


async def away(request: Request, error: Exception) -> Response:
    """Of a database that does not answer in time."""
    log.warning("database.unavailable", verb=request.url.path, error=cause(error))
    return alone(request, 503, _or_unsure(request, AWAY))


async def failed(request: Request, error: Exception) -> Response:
    """Of a fault of ours. The log has it under the id that the page shows."""
    log.error("request.failed", path=request.url.path, request_id=_id(request), exc_info=error)
    message = _or_unsure(request, _FAULT)
    try:
        return await _page(request, 500, message)
    except Exception:  # the rail may have failed for the same reason
        return alone(request, 500, message)


def _or_unsure(request: Request, message: str) -> str:
    return message if request.method in {"GET", "HEAD"} else f"{message} {_UNSURE}"


async def _page(request: Request, status: int, message: str) -> Response:
    if "viewer" not in request.scope or _by_script(request):
        return alone(request, status, message)
    try:
        return await whole(request, "error", _context(request, status, message, "layout.html"), status=status)
    except (DatabaseError, PoolTimeout):
        return alone(request, status, message)


def alone(request: Request, status: int, message: str) -> Response:
    """The page without a rail, for which nothing is read; for a script, the words alone."""
    headers = _HEADERS.get(status, {})
    if _by_script(request):
        return PlainTextResponse(f"{message}\n", status, headers)
    context = _context(request, status, message, "alone.html")
    answer = compression.html(request, request.app.state.templates.render("error", context), status)
    answer.headers.update(headers)
    return answer


def _context(request: Request, status: int, message: str, frame: str) -> dict[str, object]:
    ours = request.url.path.startswith("/console/")
    again = request.url.path if ours and request.method == "GET" and status >= 500 else ""
    return {
        "frame": frame,
        "title": _TITLES.get(status, "That did not work"),
        "message": message,
        "request_id": _id(request),
        "again": f"{again}?{request.url.query}" if again and request.url.query else again,
        "theme": theme(request),
    }


def _id(request: Request) -> str:
    return str(request.scope.get("request_id", ""))


def _by_script(request: Request) -> bool:
    return request.headers.get("sec-fetch-dest") == "empty"
