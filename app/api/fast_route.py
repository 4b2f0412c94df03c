"""Routes that serve thousands of requests a second."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.deps import Parts, caller, key_holder


class FastRoute(APIRoute):
    """Passes `request`, `parts`, `tenant` and the strings of the path to its endpoint by name, and checks nothing else.

    FastAPI's dependency injection, which handles any signature, takes longer than the rest of a poll. The OpenAPI document
    still reads the signature.
    """

    def __init__(self, path: str, endpoint: Callable[..., Awaitable[Response]], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.app = _answering(endpoint)


def _answering(endpoint: Callable[..., Awaitable[Response]]) -> ASGIApp:
    names = tuple(inspect.signature(endpoint).parameters)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        parts = cast(Parts, request.app.state.parts)
        tenant = await key_holder(request, parts)
        if "account_id" in request.path_params:
            tenant = await caller(request.path_params["account_id"], tenant, parts)
        given = {**request.path_params, "request": request, "parts": parts, "tenant": tenant}
        response = await endpoint(**{name: given[name] for name in names})
        await response(scope, receive, send)

    return answer
