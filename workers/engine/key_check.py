"""An ASGI middleware for vLLM that requires the engine's key on every path except `/health` and `/metrics`.

vLLM itself requires its key only on paths such as `/v1`. The middleware runs in vLLM's process, before everything else there.
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
    """Answers 401 to a request without the engine's key. Raises KeyError if no key is set."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._app = app
        self._expected = f"bearer {os.environ[VARIABLE]}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in OPEN or self._has_key(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 401, "headers": _HEADERS})
            await send({"type": "http.response.body", "body": _BODY})
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _has_key(self, scope: Scope) -> bool:
        for name, value in scope["headers"]:
            if name == b"authorization":
                scheme, _, key = value.partition(b" ")
                return hmac.compare_digest(scheme.lower() + b" " + key, self._expected)
        return False
