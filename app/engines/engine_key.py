"""The bearer token by which an engine knows us, on the routes that compute something.

An attached engine's is a setting. One that we start gets a token of its own, derived from the deployment's secret key, so that
its worker and every gateway know it and nothing has to tell it.
"""

from functools import lru_cache

from app.crypto import bearer_token
from app.settings import Settings


def engine_key(settings: Settings, secret: bytes, name: str, mode: str) -> str:
    """What the engine of this name wants to be shown; empty: nothing. `mode`: `managed` or `attached`."""
    return _managed(secret, name) if mode == "managed" else settings.engine_api_key.get_secret_value()


@lru_cache(maxsize=256)
def _managed(secret: bytes, name: str) -> str:
    return bearer_token(secret, f"engine {name}")
