"""Standard Webhooks 1.0.0 signatures: always `v1` (HMAC-SHA256), and `v1a` (ed25519) for endpoints that ask for it.

Pure, except that new keys are random. A public key is `whpk_` and base64.
"""

import base64
import binascii
import secrets as randomness
from collections.abc import Sequence
from datetime import datetime, timedelta

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from standardwebhooks import Webhook

PREFIX = "whsec_"
SECRET_BYTES = range(24, 65)
_FOUR, _PAIR, _TRIPLE = r"[A-Za-z0-9+/]{4}", r"[A-Za-z0-9+/]{2}==", r"[A-Za-z0-9+/]{3}="
PATTERN = f"^{PREFIX}(({_FOUR}){{8,21}}({_PAIR})?|({_FOUR}){{8,20}}{_TRIPLE})$"  # of so many bytes in base64


def new_secret() -> str:
    """A fresh signing secret, `whsec_` and 32 random bytes in base64."""
    return PREFIX + base64.b64encode(randomness.token_bytes(32)).decode()


def secret_problem(secret: str) -> str | None:
    """Why `secret` cannot be used for signing, as a message for its owner; None if it can."""
    if not secret.startswith(PREFIX):
        return f"must start with {PREFIX!r}"
    try:
        size = len(base64.b64decode(secret.removeprefix(PREFIX), validate=True))
    except (binascii.Error, ValueError):
        return f"must be {PREFIX!r} followed by base64"
    if size not in SECRET_BYTES:
        return f"must hold {SECRET_BYTES[0]} to {SECRET_BYTES[-1]} bytes, not {size}"
    return None


def new_signing_key() -> bytes:
    """A fresh ed25519 private key, 32 raw bytes."""
    return Ed25519PrivateKey.generate().private_bytes_raw()


def public_key(private: bytes) -> str:
    """The key with which a receiver verifies `v1a`."""
    raw = Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
    return "whpk_" + base64.b64encode(raw).decode()


def headers(
    secrets: Sequence[str], webhook_id: str, body: bytes, moment: datetime, private: Sequence[bytes] = ()
) -> dict[str, str]:
    """The three headers with which a receiver verifies `body`, by any of the secrets, or by the public key of any of
    `private`.

    `moment`: when this attempt starts, as an aware datetime in UTC.
    """
    if moment.utcoffset() != timedelta(0):
        raise ValueError("the signing library treats any clock time as UTC: pass an aware UTC datetime")
    signatures = [str(Webhook(secret).sign(webhook_id, moment, body.decode())) for secret in secrets]
    at = str(int(moment.timestamp()))
    for key in private:
        signed = Ed25519PrivateKey.from_private_bytes(key).sign(f"{webhook_id}.{at}.".encode() + body)
        signatures.append("v1a," + base64.b64encode(signed).decode())
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": at,
        "webhook-signature": " ".join(signatures),
    }
