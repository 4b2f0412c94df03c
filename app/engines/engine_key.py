"""The bearer token for requests to an engine.

The token of an attached engine is a setting. The token of a managed engine is derived from the deployment's secret key, so
that its worker and every gateway can compute it.
"""

from functools import lru_cache

from app.crypto import bearer_token
from app.settings import Settings


def engine_key(settings: Settings, secret: bytes, name: str, mode: str) -> str:
    """The token of this engine; empty if it needs none. `mode`: `managed` or `attached`."""
    return _managed(secret, name) if mode == "managed" else settings.engine_api_key.get_secret_value()


@lru_cache(maxsize=256)
def _managed(secret: bytes, name: str) -> str:
    return bearer_token(secret, f"engine {name}")
