"""The door: an ASGI middleware for the engine's own HTTP server, so that callers keep the engine's URL.

vllm serve … --middleware slackwater_vllm.door.Door
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """`Door`, imported on demand: every command reads `settings`, and the middleware's HTTP client is slow to import."""
    if name != "Door":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .middleware import Door

    return Door
