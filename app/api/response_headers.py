"""Headers of every answer: the request's id, and the headers that routes put into `request.state.headers`."""

import random
import re
import uuid
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_ID = "x-request-id"
CLOUDFLARE_ID = "cf-ai-req-id"
COMPLETE = "x-slackwater-complete"  # whether the content is final
TRACE_ID = "x-slackwater-trace-id"  # of the request; a batch keeps it
_ID = re.compile(r"[\x21-\x7e]{1,128}")


class ResponseHeaders:
    """An ASGI middleware. It does not change bodies, so streams pass without delay."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = request_id(Headers(scope=scope)) or new_id()
        state = scope.setdefault("state", {})
        state["request_id"] = name

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = {REQUEST_ID: name, CLOUDFLARE_ID: name, **state.get("headers", {})}
                message["headers"].extend((key.encode(), value.encode("latin-1")) for key, value in added.items())
            await send(message)

        await self._app(scope, receive, sending)


def add(request: Request, more: dict[str, str]) -> None:
    """Add headers to the answer to this request."""
    request.state.headers = getattr(request.state, "headers", {}) | more


def attachment(filename: str) -> str:
    """The `Content-Disposition` of a download (RFC 6266): a name without a folder; other characters than ASCII in `filename*`."""
    name = "".join(filter(str.isprintable, re.split(r"[/\\]", filename)[-1])).strip().lstrip(".") or "file"
    plain = re.sub(r'["%]|[^ -~]', "_", name)
    more = "" if plain == name else f"; filename*=UTF-8''{quote(name, safe='')}"
    return f'attachment; filename="{plain}"{more}'


def new_id() -> str:
    """A UUID (version 4) that names a request. It need not be unpredictable, so it costs no system call."""
    return str(uuid.UUID(int=random.getrandbits(128), version=4))


def request_id(headers: Headers) -> str | None:
    """The caller's own id of the request, if a header may contain it."""
    given = headers.get(CLOUDFLARE_ID) or headers.get(REQUEST_ID)
    return given if given and _ID.fullmatch(given) else None
