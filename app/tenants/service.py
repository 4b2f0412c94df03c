"""The verbs of tenants: make keys, list and revoke them, tell who is calling."""

import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from app.crypto import hash_secret
from app.db.pool import Connection
from app.errors import BadInput, NotFound
from app.tenants import keys, queries
from app.tenants.limits import NO_LIMITS, Limits

_ACCOUNT = re.compile("[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who is calling, and by which key; `limits` as they stand at the key."""

    tenant_id: int
    account_id: str
    key_id: str = ""
    limits: Limits = NO_LIMITS


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
    limits: Limits = NO_LIMITS

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


async def set_webhook_hosts(conn: Connection, account_id: str, hosts: Sequence[str] | None) -> None:
    """Let this account's webhooks go to these hosts only (`.example.com`: those below it); None: to any. Raises NotFound.

    Holds for what is registered already, from the next attempt on.
    """
    tenant_id = await find_tenant(conn, account_id)
    values = {"tenant_id": tenant_id, "hosts": None if hosts is None else list(hosts)}
    await conn.execute(queries.SET_WEBHOOK_HOSTS, values)


async def create_key(
    conn: Connection,
    pepper: bytes,
    account_id: str,
    name: str,
    lifetime: timedelta | None = None,
    limits: Limits = NO_LIMITS,
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
        "requests": limits.requests,
        "tokens": limits.tokens,
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
    return Tenant(row[1], row[2], key.key_id, Limits(row[4], row[5]))


async def list_keys(conn: Connection) -> list[KeyInfo]:
    """Every key, oldest first."""
    rows = await (await conn.execute(queries.LIST_KEYS)).fetchall()
    return [KeyInfo(*(*row[:7], Limits(*row[7:]))) for row in rows]


async def revoke_key(conn: Connection, key_id: str) -> bool:
    """Make a key useless, within `known.TRUST_SECONDS` everywhere. False when there is no such live key."""
    return await (await conn.execute(queries.REVOKE_KEY, {"key_id": key_id})).fetchone() is not None
