"""vLLM guards only the paths that begin with `/v1` and the like by its key. This middleware guards all others too.

It runs in vLLM's own process, in front of everything else there.
"""

import hmac
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

VARIABLE = "VLLM_API_KEY"
MIDDLEWARE = "workers.engine.key_check.KeyCheck"
OPEN = frozenset({"/health", "/metrics"})

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_BODY = (
    b'{"error":"This engine computes for Slackwater alone. Ask Slackwater\'s API instead, with a key of your account."}'
)
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(_BODY)).encode())]


class KeyCheck:
    """An ASGI middleware that answers 401 to whoever does not show the engine's key. Raises KeyError without a key."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._app = app
        self._expected = f"bearer {os.environ[VARIABLE]}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in OPEN or self._knows_us(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 401, "headers": _HEADERS})
            await send({"type": "http.response.body", "body": _BODY})
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _knows_us(self, scope: Scope) -> bool:
        for name, value in scope["headers"]:
            if name == b"authorization":
                scheme, _, key = value.partition(b" ")
                return hmac.compare_digest(scheme.lower() + b" " + key, self._expected)
        return False
