"""The format of an API key, `sk_sw_<id>_<secret>`, and the hash of its secret. Pure.

The id identifies the row. Of the secret only a hash is stored. A secret of 256 random bits needs
no slow password hash, so an HMAC is enough.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass

from app import crypto

PREFIX = "sk_sw_"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key with its secret."""

    key_id: str
    secret: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.key_id}_{self.secret}"

    def hashed(self, master_key: bytes) -> bytes:
        """The hash of the secret that the database stores: HMAC-SHA256 under a pepper of the master key, 32 bytes."""
        return hmac.digest(crypto.derive(master_key, b"api-key pepper"), self.secret.encode(), hashlib.sha256)


def generate() -> ApiKey:
    """A new random key."""
    return ApiKey(secrets.token_hex(6), secrets.token_urlsafe(32))


def parse(token: str) -> ApiKey | None:
    """The key in a bearer token. None: the token has another format."""
    if not token.startswith(PREFIX):
        return None
    key_id, _, secret = token[len(PREFIX) :].partition("_")
    return ApiKey(key_id, secret) if key_id and secret else None
