"""The secrets that Slackwater shows to an engine, and an engine's door to Slackwater.

The key of an attached engine is a setting. The key of a managed engine is derived from the deployment's secret key, so that its
worker and every gateway can compute it. So is the token of an engine's door.
"""

import hmac
from functools import lru_cache

from app.crypto import accepted, bearer_token
from app.settings import Settings
from workers.engine.door.settings import OUR_HEADER


def engine_key(settings: Settings, secret: bytes, name: str, mode: str) -> str:
    """The bearer token that this engine requires; empty if it needs none. `mode`: `managed` or `attached`."""
    return _managed(secret, name) if mode == "managed" else settings.engine_api_key.get_secret_value()


def engine_headers(settings: Settings, secret: bytes, name: str, mode: str) -> dict[str, str]:
    """The headers of a request to this engine. The door of an attached engine, if it has one, lets it pass with its priority."""
    key = engine_key(settings, secret, name, mode)
    shown = {"authorization": f"Bearer {key}"} if key else {}
    if mode == "managed":
        return shown
    # A door knows the token of one master key, which may be any that is accepted.
    return {**shown, OUR_HEADER.decode(): ",".join(door_token(each, name) for each in accepted(secret))}


def engine_keys(secret: bytes, name: str) -> list[str]:
    """The bearer tokens that a managed engine accepts, one for each master key that is accepted, the one in use first."""
    return [_managed(each, name) for each in accepted(secret)]


@lru_cache(maxsize=256)
def door_token(secret: bytes, name: str) -> str:
    """The token of this engine's door: `NAME.hex`. It opens nothing of another engine."""
    return f"{name}.{bearer_token(secret, f'door {name}')}"


def engine_of_door(secret: bytes, token: str) -> str | None:
    """The engine whose door shows this token; None: it is no door's token."""
    name = token.rpartition(".")[0]
    known = [f"{name}.{bearer_token(each, f'door {name}')}".encode() for each in accepted(secret)]
    return name if name and any(hmac.compare_digest(token.encode(), each) for each in known) else None


@lru_cache(maxsize=256)
def _managed(secret: bytes, name: str) -> str:
    return bearer_token(secret, f"engine {name}")
