"""The verbs of tenants: make keys, list and revoke them, tell who is calling."""

import hmac
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from app.crypto import hash_secret
from app.db.pool import Connection
from app.errors import BadInput, NotFound
from app.tenants import keys, queries

_ACCOUNT = re.compile("[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who is calling."""

    tenant_id: int
    account_id: str


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """A key without its secret."""

    key_id: str
    account_id: str
    name: str
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None

    def state(self, now: datetime) -> Literal["live", "expired", "revoked"]:
        """Whether the key works at this moment, and if not, why."""
        if self.revoked_at:
            return "revoked"
        return "expired" if self.expires_at and self.expires_at <= now else "live"


async def ensure_tenant(conn: Connection, account_id: str) -> int:
    """The tenant of this account, made if missing. Call inside a transaction. Raises BadInput: it must fit into a URL."""
    if not _ACCOUNT.fullmatch(account_id):
        raise BadInput(f"account: must be 1 to 64 letters, digits, '-' and '_', not {account_id!r}")
    await conn.execute(queries.LOCK_TENANTS)
    row = await (await conn.execute(queries.ENSURE_TENANT, {"account_id": account_id})).fetchone()
    assert row is not None
    return int(row[0])


async def find_tenant(conn: Connection, account_id: str) -> int:
    """The tenant of this account. Raises NotFound."""
    row = await (await conn.execute(queries.FIND_TENANT, {"account_id": account_id})).fetchone()
    if row is None:
        raise NotFound(f"There is no account {account_id}; `slackwater key create --account {account_id}` makes one")
    return int(row[0])


async def set_share(
    conn: Connection, account_id: str, weight: float | None, max_inflight_tokens: int | None
) -> tuple[float, int]:
    """Set an account's weight in the fair order and its cap of estimated tokens in flight; None leaves one as it is.

    Returns both. Raises NotFound.
    """
    tenant_id = await find_tenant(conn, account_id)
    values = {"tenant_id": tenant_id, "weight": weight, "max_inflight_tokens": max_inflight_tokens}
    row = await (await conn.execute(queries.SET_SHARE, values)).fetchone()
    assert row is not None
    return float(row[0]), int(row[1])


async def set_retention(conn: Connection, account_id: str, days: int | None) -> None:
    """Keep this account's batches at least so many days; None: as long as the settings say. Raises NotFound."""
    tenant_id = await find_tenant(conn, account_id)
    await conn.execute(queries.SET_RETENTION, {"tenant_id": tenant_id, "days": days})


async def create_key(
    conn: Connection, pepper: bytes, account_id: str, name: str, lifetime: timedelta | None = None
) -> keys.ApiKey:
    """Make a key for an account. The secret is returned this once; only its HMAC is stored."""
    tenant_id = await ensure_tenant(conn, account_id)
    key = keys.generate()
    parameters = {
        "key_id": key.key_id,
        "tenant_id": tenant_id,
        "secret_hash": hash_secret(pepper, key.secret),
        "name": name,
        "lifetime": lifetime,
    }
    await conn.execute(queries.INSERT_KEY, parameters)
    return key


async def authenticate(conn: Connection, pepper: bytes, token: str) -> Tenant | None:
    """The tenant that a bearer token speaks for; None when it is unknown, expired or revoked."""
    key = keys.parse(token)
    if key is None:
        return None
    row = await (await conn.execute(queries.FIND_KEY, {"key_id": key.key_id})).fetchone()
    if row is None or not hmac.compare_digest(row[0], hash_secret(pepper, key.secret)):
        return None
    if row[3]:
        await conn.execute(queries.TOUCH_KEY, {"key_id": key.key_id})
    return Tenant(row[1], row[2])


async def list_keys(conn: Connection) -> list[KeyInfo]:
    """Every key, oldest first."""
    return [KeyInfo(*row) for row in await (await conn.execute(queries.LIST_KEYS)).fetchall()]


async def revoke_key(conn: Connection, key_id: str) -> bool:
    """Make a key useless at once. False when there is no such live key."""
    return await (await conn.execute(queries.REVOKE_KEY, {"key_id": key_id})).fetchone() is not None
