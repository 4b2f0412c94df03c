"""A small ASGI answer, and the types of ASGI."""

import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


async def answer(
    scope: Scope,
    send: Send,
    status: int,
    body: dict[str, Any] | bytes,
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    """Answer a request with JSON, or with bytes and their content type. A websocket is closed instead."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    typed = [] if any(name == b"content-type" for name, _ in headers) else [(b"content-type", b"application/json")]
    length = (b"content-length", str(len(content)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*typed, length, *headers]})
    await send({"type": "http.response.body", "body": content})
