"""Cloudflare's envelope `{"result", "success", "errors", "messages"}`, for answers and for every kind of error.

On the OpenAI routes an error has OpenAI's `error` too, so both kinds of clients can read it.
"""

from collections.abc import Sequence
from typing import Any

import orjson
import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from psycopg import Error as DatabaseError
from psycopg.errors import DiskFull
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Route

from app.api import known_paths
from app.api.response_headers import CLOUDFLARE_ID, REQUEST_ID
from app.causes import cause
from app.db.transient_errors import TRANSIENT, away
from app.errors import (
    BadInput,
    BodyTooLarge,
    BudgetSpent,
    DatabaseAway,
    InternalError,
    KeyInUse,
    MethodUnknown,
    ModelUnknown,
    NoCapacity,
    PathUnknown,
    QuotaExceeded,
    RateLimited,
    SlackwaterError,
    StorageFull,
)
from app.openai_codes import OpenAICode
from app.wrong_values import field_at, wrong

# Callers of these paths read the envelope; those of others may be OpenAI's clients.
_OF_CLOUDFLARE = known_paths.OF_CLOUDFLARE
_log = structlog.get_logger("api")


def success(result: Any, status: int = 200, **extra: Any) -> Response:
    """A 2xx envelope with `result`; `extra` adds top-level keys such as `result_info`."""
    content = {"result": result, "success": True, "errors": [], "messages": [], **extra}
    return Response(orjson.dumps(content), status, media_type="application/json")


def failure(
    request: Request, error: SlackwaterError, headers: dict[str, str] | None = None, *, openai: bool = False
) -> JSONResponse:
    """An error envelope, with OpenAI's `error` on its routes or if `openai`. The header `x-should-retry` tells the SDK whether to
    retry.
    """
    retry = {"x-should-retry": "true" if error.status in (429, 503) else "false"}
    content = error.content(openai=openai or _is_openai(request))
    return JSONResponse(content, error.status, headers=retry | (headers or {}))


def refusal(status: int, message: str) -> tuple[str, bytes]:
    """The envelope of an error that occurs before the route is known, for both kinds of clients: media type and body."""
    error = NoCapacity(message, status=status) if status == 503 else BadInput(message, status=status)
    return "application/json", orjson.dumps(error.content())


def _is_openai(request: Request) -> bool:
    path = request.url.path
    return not path.startswith(_OF_CLOUDFLARE) or "/ai/v1/" in path


def install(app: FastAPI) -> None:
    """Answer every error of every route in the envelope."""
    app.add_exception_handler(SlackwaterError, _ours)
    app.add_exception_handler(HTTPException, _routing)
    app.add_exception_handler(RequestValidationError, _parameters)
    app.add_exception_handler(DiskFull, _database_full)
    for passing in TRANSIENT:
        app.add_exception_handler(passing, _database_away)
    app.add_exception_handler(ClientDisconnect, _broken_off)
    app.add_exception_handler(Exception, _unexpected)


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, SlackwaterError)
    if isinstance(error, StorageFull):
        _log.error("storage.full", path=request.url.path, error=str(error.__cause__ or error).strip())
    seconds = error.retry_after if isinstance(error, (NoCapacity, RateLimited, BudgetSpent)) else None
    headers = {} if seconds is None else {"retry-after": str(seconds)}
    if isinstance(error, KeyInUse):
        headers = {"x-should-retry": "true", "retry-after": "1"}
    if (
        (isinstance(error, RateLimited) and error.final)
        or isinstance(error, QuotaExceeded)
        or error.reason == OpenAICode.UNAVAILABLE
    ):
        headers = {"x-should-retry": "false"}
    if isinstance(error, BudgetSpent):
        headers |= {"x-should-retry": "true" if error.again else "false"}
    if isinstance(error, ModelUnknown) and _is_openai(request):
        error.status = 404
    return failure(request, error, headers)


async def _routing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return _unknown_path(request)
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    if error.status_code == 405:
        headers["allow"] = allowed = ", ".join(_methods(request))
        message = f"{request.method} not supported for requested URI; use {allowed}"
        return failure(request, MethodUnknown(message), headers)
    if error.status_code == 413:
        return failure(request, BodyTooLarge("Request is too large"), headers)
    return failure(request, SlackwaterError(str(error.detail), status=error.status_code), headers)


def _unknown_path(request: Request) -> Response:
    """There is no such route. A client of OpenAI's API is told which one it seems to mean."""
    path = request.url.path
    hint = known_paths.hint(_paths(request.app), path)
    if not hint and not _is_openai(request):
        return failure(request, unrouted(path))
    message = f"Invalid URL ({request.method} {path}); {hint or 'GET /openapi.json lists the routes'}"
    return failure(request, PathUnknown(message), openai=True)


def _paths(app: FastAPI) -> list[str]:
    return list(dict.fromkeys(route.path for route in app.routes if isinstance(route, Route)))


def unrouted(path: str) -> PathUnknown:
    """The error for a path that is no route, in Cloudflare's words."""
    return PathUnknown(f"Could not route to {path}, perhaps your object identifier is invalid?")


def _methods(request: Request) -> list[str]:
    """The methods that a path supports: those of the most specific routes that match it."""
    matching = [
        route
        for route in request.app.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] != Match.NONE
    ]
    fewest = min(len(route.param_convertors) for route in matching)
    methods = [route.methods or () for route in matching if len(route.param_convertors) == fewest]
    return sorted(set().union(*methods))


async def _parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["loc"][0] == "path" and first["type"] == "literal_error":
        return _unknown_path(request)  # a word of the route, such as a verb, and no value
    where = ".".join(str(part) for part in first["loc"][1:])  # without "query" or "path"
    what = wrong(first, of=_declared(request, first["loc"]))
    if first["type"] == "extra_forbidden":
        what = "is not a parameter of this route"
    return failure(request, BadInput(f"{where}: {what}", param=str(first["loc"][-1])))


def _declared(request: Request, place: Sequence[int | str]) -> Any:
    """The parameter at this place, as the route declares it; the place begins with where it stands. None: it is not found."""
    route = request.scope.get("route")
    given = [] if not isinstance(route, APIRoute) else [*route.dependant.path_params, *route.dependant.query_params]
    for each in given:
        if each.alias in place[1:2]:
            return each.field_info
        if (found := field_at(each.field_info, place[1:])) is not None:
            return found
    return None


async def _database_away(request: Request, error: Exception) -> Response:
    assert isinstance(error, DatabaseError)
    gone = away(error)
    name = "database.away" if gone else "database.refused"
    _log.warning(name, path=request.url.path, kind=type(error).__name__, error=cause(error))
    what = "cannot be reached" if gone else "could not do this"
    stored = "" if request.method in ("GET", "HEAD") else "; the request may have been stored"
    message = f"The database {what} right now. Try again in a few seconds{stored}."
    return failure(request, DatabaseAway(message), {"retry-after": "2"})


async def _database_full(request: Request, error: Exception) -> Response:
    full = StorageFull(
        "The database's disk is full, and nothing was stored. Send the request again after the operator has freed space on it."
    )
    full.__cause__ = error
    return await _ours(request, full)


async def _broken_off(request: Request, error: Exception) -> Response:
    """The client disconnected before its body was complete, so nobody reads this answer."""
    _log.info("request.broken_off", path=request.url.path, request_id=request.state.request_id)
    return Response(status_code=400)


async def _unexpected(request: Request, error: Exception) -> Response:
    name = getattr(request.state, "request_id", "")  # this answer does not pass the middleware that adds the id
    _log.error("request.failed", path=request.url.path, request_id=name, exc_info=error)
    ids = {REQUEST_ID: name, CLOUDFLARE_ID: name} if name else None
    return failure(
        request, InternalError("Internal error. The operator's log has the details under this request's id."), ids
    )
