"""Cloudflare's envelope `{"result", "success", "errors", "messages"}`, for answers and for every kind of error."""

from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from psycopg import OperationalError
from psycopg.errors import DiskFull
from psycopg_pool import PoolTimeout
from starlette.exceptions import HTTPException

from app.errors import SlackwaterError, StorageFull

_GATEWAY_CODES = {404: 7003, 405: 7001, 413: 3006}
_log = structlog.get_logger("api")


def success(result: Any, status: int = 200, **extra: Any) -> JSONResponse:
    """A 2xx envelope around `result`; `extra` adds top-level keys such as `result_info`."""
    content = {"result": result, "success": True, "errors": [], "messages": [], **extra}
    return JSONResponse(content, status)


def failure(status: int, code: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error envelope. A final error tells the SDK not to try again."""
    content = {"result": None, "success": False, "errors": [{"code": code, "message": message}], "messages": []}
    retry = {"x-should-retry": "true" if status in (429, 503) else "false"}
    return JSONResponse(content, status, headers=retry | (headers or {}))


def install(app: FastAPI) -> None:
    """Answer every error of every route in the envelope."""
    app.add_exception_handler(SlackwaterError, _ours)
    app.add_exception_handler(HTTPException, _routing)
    app.add_exception_handler(RequestValidationError, _parameters)
    app.add_exception_handler(DiskFull, _database_full)
    app.add_exception_handler(OperationalError, _database_away)
    app.add_exception_handler(PoolTimeout, _database_away)
    app.add_exception_handler(Exception, _unexpected)


def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, SlackwaterError)
    if isinstance(error, StorageFull):
        _log.error("storage.full", path=request.url.path, error=str(error.__cause__ or error).strip())
    return failure(error.status, error.code, error.message)


def _routing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    messages = {
        404: f"Could not route to {request.url.path}, perhaps your object identifier is invalid?",
        405: f"{request.method} not supported for requested URI.",
        413: "Request is too large",
    }
    code = _GATEWAY_CODES.get(error.status_code, 5001)
    headers = dict(error.headers) if error.headers else None
    return failure(error.status_code, code, messages.get(error.status_code, str(error.detail)), headers)


def _parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return failure(400, 5006, f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}")


def _database_away(request: Request, error: Exception) -> Response:
    _log.warning("database.away", path=request.url.path, error=str(error).strip())
    message = (
        "The database cannot be reached right now. Try again in a few seconds; what was sent may have been stored."
    )
    return failure(503, 5001, message, {"retry-after": "2"})


def _database_full(request: Request, error: Exception) -> Response:
    full = StorageFull(
        "The database's disk is full; nothing was stored. Send the request again once the operator has freed space there."
    )
    full.__cause__ = error
    return _ours(request, full)


def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("request.failed", path=request.url.path, exc_info=error)
    return failure(500, 5001, "Internal error; the operator's log has the details.")
