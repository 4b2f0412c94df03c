"""Limits on a request before routing, how unread bodies are discarded, and how an answer ends that cannot be completed."""

from collections.abc import Callable

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.db.transient_errors import TRANSIENT
from app.errors import BadInput, NoCapacity, SlackwaterError
from app.serving.connection_limits import RESERVED

_log = structlog.get_logger("api")

HEAD_BYTES = 32 * 1024
_URL_BYTES = 16 * 1024
HEADERS = 100
_UNREAD_BYTES = 64 * 1024  # an unread rest of this size is discarded, so the connection can be used again


# The answer to a request that is refused: why, and further headers.
Answer = Callable[[Request, SlackwaterError, dict[str, str]], Response]


class RequestLimits:
    """An ASGI middleware: limits of a request's head, connections of the reserve, and unread bodies."""

    def __init__(self, app: ASGIApp, answer: Answer) -> None:
        self._app, self._answer = app, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(scope, receive)
        refused = _refused(scope)
        if refused:
            answer = self._answer(Request(scope), refused, {"connection": "close"})
            await answer(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and body.is_too_long_to_discard:
                message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            await self._app(scope, body.receive, sending)
        except RuntimeError as error:  # Starlette's, about an error after the start of the response
            abort = scope.get("state", {}).get("abort")
            if abort is None or not isinstance(error.__cause__, TRANSIENT):
                raise
            _log.warning("response.cut", path=scope["path"], error=str(error.__cause__).strip())
            abort()
            while (await receive())["type"] != "http.disconnect":
                pass


class _Body:
    """A request's body, and the number of its bytes that are not read yet."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"")
        # without a declared length the rest is unknown
        self._rest = float(declared) if declared.isdigit() else float("inf" if b"transfer-encoding" in headers else 0)

    async def receive(self) -> Message:
        message = await self._receive()
        self._rest = self._rest - len(message.get("body", b"")) if message.get("more_body") else 0
        return message

    @property
    def is_too_long_to_discard(self) -> bool:
        """Whether reading the rest would cost more than a new connection."""
        return self._rest > _UNREAD_BYTES


def _refused(scope: Scope) -> SlackwaterError | None:
    """Why a request is refused; None: it is accepted."""
    url = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    if url > _URL_BYTES:
        message = f"The URL is too long: {url} bytes, at most {_URL_BYTES} are accepted. Send long values in a body."
        return BadInput(message, status=414)
    headers = scope["headers"]
    size = sum(len(name) + len(value) + 4 for name, value in headers) + url
    if len(headers) > HEADERS or size > HEAD_BYTES:
        message = (
            f"The headers are too many or too long: {len(headers)} with {size} bytes,"
            f" at most {HEADERS} with {HEAD_BYTES} are accepted. Remove some."
        )
        return BadInput(message, status=431)
    crowded = scope.get("state", {}).get("crowded")
    if crowded and scope["path"] not in RESERVED:
        return NoCapacity(crowded, status=503)
    return None
