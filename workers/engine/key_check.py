"""An ASGI middleware for vLLM that requires the engine's key on every path except `/health` and `/metrics`.

vLLM itself requires its key only on paths such as `/v1`. The middleware runs in vLLM's process, before everything else there.
Unlike the door, it refuses a request that it cannot check, because nobody but Slackwater calls a managed engine.
"""

import hmac
import os

from .http_answer import App, Receive, Scope, Send, answer

VARIABLE = "VLLM_API_KEY"
OTHERS = "SLACKWATER_ENGINE_KEYS"  # comma-separated; accepted too, while the deployment's secret key is being changed
MIDDLEWARE = f"{__name__}.KeyCheck"
OPEN = frozenset({"/health", "/metrics"})
_ERROR = {
    "error": "This engine computes for Slackwater alone. Ask Slackwater's API instead, with a key of your account."
}


class KeyCheck:
    """Answers 401 to a request without a key of the engine. Raises KeyError if no key is set."""

    def __init__(self, app: App) -> None:
        self._app = app
        keys = [os.environ[VARIABLE], *filter(None, os.environ.get(OTHERS, "").split(","))]
        self._expected = [f"bearer {key}".encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in OPEN or self._has_key(scope):
            await self._app(scope, receive, send)
        else:
            await answer(scope, send, 401, _ERROR)

    def _has_key(self, scope: Scope) -> bool:
        """Whether the first authorization is a key of the engine. vLLM, which knows one key only, is shown that one."""
        for place, (name, value) in enumerate(scope["headers"]):
            if name == b"authorization":
                scheme, _, key = value.partition(b" ")
                given = scheme.lower() + b" " + key
                if not any(hmac.compare_digest(given, expected) for expected in self._expected):
                    return False
                scope["headers"] = [*scope["headers"]]
                scope["headers"][place] = (name, b"Bearer" + self._expected[0][len(b"bearer") :])
                return True
        return False
