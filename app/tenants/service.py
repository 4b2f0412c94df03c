"""The verbs of tenants and keys: create, list and revoke keys, and authenticate a caller."""

import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Literal

from app.db.pool import Connection
from app.errors import AccountUnknown, BadInput, Conflict
from app.states import TenantState
from app.tenants import api_key, sql
from app.tenants.rate_limits import NO_LIMITS, KeyLimits

_ACCOUNT = re.compile("[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Tenant:
    """The caller, and the key it used. `limits`: of that key. `pins`: the labels that it gives every request, by name.

    `has_quota`: whether the account has a quota. `restore`: whether the key may read the values behind placeholders.
    """

    tenant_id: int
    account_id: str
    key_id: str = ""
    limits: KeyLimits = NO_LIMITS
    pins: tuple[tuple[str, str], ...] = ()
    has_quota: bool = False
    restore: bool = False


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
    limits: KeyLimits = NO_LIMITS
    pins: tuple[tuple[str, str], ...] = ()
    restore: bool = False

    def state(self, now: datetime) -> Literal["live", "expired", "revoked"]:
        """Whether the key is valid at this moment, and if not, why."""
        if self.revoked_at:
            return "revoked"
        return "expired" if self.expires_at and self.expires_at <= now else "live"


async def create_tenant(conn: Connection, account_id: str) -> int:
    """Create an account. Raises BadInput if its name does not fit into a URL, Conflict if it exists."""
    tenant_id = await _create(conn, account_id)
    if tenant_id is None:
        raise Conflict(f"Account {account_id} exists already")
    return tenant_id


async def ensure_tenant(conn: Connection, account_id: str) -> int:
    """The tenant of this account, created if missing. Raises BadInput, AccountUnknown."""
    created = await _create(conn, account_id)
    return await find_tenant(conn, account_id) if created is None else created


async def _create(conn: Connection, account_id: str) -> int | None:
    if not _ACCOUNT.fullmatch(account_id):
        raise BadInput(f"account: must be 1 to 64 letters, digits, '-' and '_', not {account_id!r}")
    row = await (await conn.execute(sql.CREATE_TENANT, {"account_id": account_id})).fetchone()
    return None if row is None else int(row[0])


async def find_tenant(conn: Connection, account_id: str) -> int:
    """The tenant of this account. Raises AccountUnknown if there is none or it is being deleted."""
    row = await (await conn.execute(sql.FIND_TENANT, {"account_id": account_id})).fetchone()
    if row is None:
        raise AccountUnknown(f"There is no account {account_id}")
    if row[1] != TenantState.ACTIVE:
        raise _being_deleted(account_id)
    return int(row[0])


async def account_id_of(conn: Connection, tenant_id: int) -> str:
    """The name of an account that exists."""
    [(account_id,)] = await (await conn.execute(sql.ACCOUNT_ID, {"tenant_id": tenant_id})).fetchall()
    return str(account_id)


async def exists(conn: Connection, account_id: str) -> bool:
    """Whether the account exists. An account that is being deleted still does."""
    return await (await conn.execute(sql.FIND_TENANT, {"account_id": account_id})).fetchone() is not None


def _being_deleted(account_id: str) -> AccountUnknown:
    return AccountUnknown(f"Account {account_id} is being deleted")


async def close(conn: Connection, tenant_id: int) -> None:
    """Revoke every key of a tenant, and allow no new ones. Call inside a transaction. `remove` completes the deletion."""
    await conn.execute(sql.CLOSE_TENANT, {"tenant_id": tenant_id})
    await conn.execute(sql.REVOKE_KEYS, {"tenant_id": tenant_id})


async def closing(conn: Connection) -> list[Tenant]:
    """The tenants that are being deleted."""
    return [Tenant(*row) for row in await (await conn.execute(sql.CLOSING_TENANTS)).fetchall()]


async def every(conn: Connection) -> list[Tenant]:
    """All tenants, those that are being deleted included."""
    return [Tenant(*row) for row in await (await conn.execute(sql.EVERY)).fetchall()]


async def remove(conn: Connection, tenant_id: int) -> None:
    """Delete a closed tenant and its keys. Call inside a transaction. Raises ForeignKeyViolation while other rows refer to it."""
    for statement in sql.REMOVE_TENANT:
        await conn.execute(statement, {"tenant_id": tenant_id})


async def set_share(
    conn: Connection, account_id: str, weight: float | None, max_inflight_tokens: int | None
) -> tuple[float, int]:
    """Set an account's weight in the fair order and its limit of estimated tokens in flight. None: keep the value.

    Returns both values. Raises AccountUnknown.
    """
    tenant_id = await find_tenant(conn, account_id)
    values = {"tenant_id": tenant_id, "weight": weight, "max_inflight_tokens": max_inflight_tokens}
    row = await (await conn.execute(sql.SET_SHARE, values)).fetchone()
    assert row is not None
    return float(row[0]), int(row[1])


async def set_retention(conn: Connection, account_id: str, days: int | None) -> None:
    """Keep this account's batches for at least so many days. None: as the settings say. Raises AccountUnknown."""
    tenant_id = await find_tenant(conn, account_id)
    await conn.execute(sql.SET_RETENTION, {"tenant_id": tenant_id, "days": days})


async def set_webhook_hosts(conn: Connection, account_id: str, hosts: Sequence[str] | None) -> None:
    """Allow webhooks of this account to these hosts only (`.example.com`: its subdomains). None: any host. Raises AccountUnknown.

    The rule also applies to existing endpoints, from their next attempt on.
    """
    tenant_id = await find_tenant(conn, account_id)
    values = {"tenant_id": tenant_id, "hosts": None if hosts is None else list(hosts)}
    await conn.execute(sql.SET_WEBHOOK_HOSTS, values)


async def note_quota(conn: Connection, tenant_id: int, *, has_quota: bool) -> None:
    """Note whether an account has a quota."""
    await conn.execute(sql.NOTE_QUOTA, {"tenant_id": tenant_id, "has_quota": has_quota})


async def create_key(
    conn: Connection,
    pepper: bytes,
    account_id: str,
    name: str,
    lifetime: timedelta | None = None,
    limits: KeyLimits = NO_LIMITS,
    pins: Mapping[str, str] = MappingProxyType({}),
    *,
    restore: bool = False,
) -> api_key.ApiKey:
    """Create a key for an account. The secret is returned only here; the database stores its HMAC.

    `pins`, `restore`: see Tenant.
    """
    tenant_id = await ensure_tenant(conn, account_id)
    key = api_key.generate()
    parameters = {
        "key_id": key.key_id,
        "tenant_id": tenant_id,
        "secret_hash": key.hashed(pepper),
        "name": name,
        "lifetime": lifetime,
        "requests": limits.requests,
        "tokens": limits.tokens,
        "pins": [f"{name}={value}" for name, value in pins.items()] or None,
        "restore": restore,
    }
    if not (await conn.execute(sql.INSERT_KEY, parameters)).rowcount:
        raise _being_deleted(account_id)
    return key


async def authenticate(conn: Connection, pepper: bytes, token: str) -> Tenant | None:
    """The tenant of a bearer token. None: the key is unknown, expired or revoked."""
    key = api_key.parse(token)
    if key is None:
        return None
    row = await (await conn.execute(sql.FIND_KEY, {"key_id": key.key_id})).fetchone()
    if row is None or not hmac.compare_digest(row[0], key.hashed(pepper)):
        return None
    if row[3]:
        await conn.execute(sql.TOUCH_KEY, {"key_id": key.key_id})
    return Tenant(row[1], row[2], key.key_id, KeyLimits(row[4], row[5]), _pins(row[6]), row[7], row[8])


async def live_keys(conn: Connection, key_ids: Sequence[str]) -> dict[str, Tenant]:
    """The tenants of those of these keys that are neither unknown, expired nor revoked. The caller has checked their secrets."""
    rows = await (await conn.execute(sql.FIND_KEYS, {"key_ids": list(key_ids)})).fetchall()
    return {row[0]: Tenant(row[1], row[2], row[0], KeyLimits(row[3], row[4])) for row in rows}


async def list_keys(conn: Connection) -> list[KeyInfo]:
    """Every key, oldest first."""
    rows = await (await conn.execute(sql.LIST_KEYS)).fetchall()
    return [KeyInfo(*(*row[:7], KeyLimits(*row[7:9]), _pins(row[9]), row[10])) for row in rows]


def _pins(stored: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    pairs = (text.partition("=") for text in stored or ())
    return tuple((name, value) for name, _, value in pairs)


async def has_key(conn: Connection, tenant_id: int, key_id: str) -> bool:
    """Whether the account has this key, and it is not revoked."""
    row = await (await conn.execute(sql.HAS_KEY, {"tenant_id": tenant_id, "key_id": key_id})).fetchone()
    return bool(row and row[0])


async def revoke_key(conn: Connection, key_id: str) -> bool:
    """Revoke a key. It takes effect everywhere within `key_cache.TRUST_SECONDS`. False: there is no such valid key."""
    return await (await conn.execute(sql.REVOKE_KEY, {"key_id": key_id})).fetchone() is not None
