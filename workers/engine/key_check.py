"""An ASGI middleware for vLLM that requires the engine's key on every path except `/health` and `/metrics`.

vLLM itself requires its key only on paths such as `/v1`. The middleware runs in vLLM's process, before everything else there.
Unlike the door, it refuses a request that it cannot check, because nobody but Slackwater calls a managed engine.
"""

import hmac
import os

from .http_answer import App, Receive, Scope, Send, answer

VARIABLE = "VLLM_API_KEY"
MIDDLEWARE = f"{__name__}.KeyCheck"
OPEN = frozenset({"/health", "/metrics"})
_ERROR = {
    "error": "This engine computes for Slackwater alone. Ask Slackwater's API instead, with a key of your account."
}


class KeyCheck:
    """Answers 401 to a request without the engine's key. Raises KeyError if no key is set."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._expected = f"bearer {os.environ[VARIABLE]}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in OPEN or self._has_key(scope):
            await self._app(scope, receive, send)
        else:
            await answer(scope, send, 401, _ERROR)

    def _has_key(self, scope: Scope) -> bool:
        for name, value in scope["headers"]:
            if name == b"authorization":
                scheme, _, key = value.partition(b" ")
                return hmac.compare_digest(scheme.lower() + b" " + key, self._expected)
        return False
