"""The format of an API key: `sk_sw_<id>_<secret>`. Pure.

The id identifies the row. Of the secret only an HMAC is stored (`app.crypto.hash_secret`, called in `service`). A secret of 256
random bits needs no slow password hash.
"""

import secrets
from dataclasses import dataclass

PREFIX = "sk_sw_"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key with its secret."""

    key_id: str
    secret: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.key_id}_{self.secret}"


def generate() -> ApiKey:
    """A new random key."""
    return ApiKey(secrets.token_hex(6), secrets.token_urlsafe(32))


def parse(token: str) -> ApiKey | None:
    """The key in a bearer token. None: the token has another format."""
    if not token.startswith(PREFIX):
        return None
    key_id, _, secret = token[len(PREFIX) :].partition("_")
    return ApiKey(key_id, secret) if key_id and secret else None
