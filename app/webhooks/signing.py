"""Standard Webhooks signatures (`v1`, HMAC-SHA256). Pure but for the randomness of a new secret."""

import base64
import binascii
import secrets
from datetime import datetime, timedelta

from standardwebhooks import Webhook

PREFIX = "whsec_"
SECRET_BYTES = range(24, 65)


def new_secret() -> str:
    """A fresh signing secret, `whsec_` and 32 random bytes in base64."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def secret_problem(secret: str) -> str | None:
    """Why `secret` cannot sign, in words for its owner; None when it can."""
    if not secret.startswith(PREFIX):
        return f"must start with {PREFIX!r}"
    try:
        size = len(base64.b64decode(secret.removeprefix(PREFIX), validate=True))
    except (binascii.Error, ValueError):
        return f"must be {PREFIX!r} followed by base64"
    if size not in SECRET_BYTES:
        return f"must hold {SECRET_BYTES[0]} to {SECRET_BYTES[-1]} bytes, not {size}"
    return None


def headers(secret: str, webhook_id: str, body: bytes, moment: datetime) -> dict[str, str]:
    """The three headers that let the receiver verify `body`. `moment` is the time of this attempt, in aware UTC."""
    if moment.utcoffset() != timedelta(0):
        raise ValueError("the signing library takes any clock time for UTC: pass an aware UTC datetime")
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": str(Webhook(secret).sign(webhook_id, moment, body.decode())),
    }
