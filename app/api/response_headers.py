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
_NAMES = (CLOUDFLARE_ID, REQUEST_ID)  # of a caller's id, the first one first
COMPLETE = "x-slackwater-complete"  # whether the content is final
TRACE_ID = "x-slackwater-trace-id"  # of the request; a batch keeps it
WARNING = "x-slackwater-warning"
_ID = re.compile(r"[\x20-\x7e]{1,512}")
_NOT_TAKEN = f"{REQUEST_ID}: not used, since it is not 1 to 512 printable characters of ASCII"


class ResponseHeaders:
    """An ASGI middleware. It does not change bodies, so streams pass without delay."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope)
        name = request_id(given) or new_id()
        not_taken = _NOT_TAKEN if name not in map(given.get, _NAMES) and any(map(given.get, _NAMES)) else ""
        state = scope.setdefault("state", {})
        state["request_id"] = name

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = {REQUEST_ID: name, CLOUDFLARE_ID: name, **state.get("headers", {})}
                if not_taken:
                    added[WARNING] = " | ".join(filter(None, (added.get(WARNING), not_taken)))
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
    return next((given for given in map(headers.get, _NAMES) if given and _ID.fullmatch(given)), None)
