"""Routes that are called thousands of times a second."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.deps import Parts, caller, key_holder


class FastRoute(APIRoute):
    """Hands its endpoint what it names of `request`, `parts`, `tenant` and the strings of the path, and checks nothing else.

    FastAPI's solving of dependencies, which does that for any signature, takes longer than all the rest of a poll. The
    signature still tells the OpenAPI document what the route takes.
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
            tenant = await caller(request.path_params["account_id"], tenant)
        given = {**request.path_params, "request": request, "parts": parts, "tenant": tenant}
        response = await endpoint(**{name: given[name] for name in names})
        await response(scope, receive, send)

    return answer
