"""The verbs of tenants and keys: create, list and revoke keys, and authenticate a caller."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal

from app import clock, crypto
from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record, changed
from app.db.pool import Connection
from app.errors import AccountUnknown, BadInput, Conflict, NotFound
from app.states import TenantState
from app.tenants import api_key, key_rows, sql
from app.tenants.key_scope import EVERYTHING, USUAL, KeyLimits, KeyScope, described
from app.tenants.rate_limits import NO_LIMITS

_ACCOUNT = re.compile("[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Tenant:
    """The caller, and the key it used. `limits`: of that key. `pins`: the labels that it gives every request, by name.

    `has_quota`: whether the account may have a quota. `scope`: what the key may do. `rotation`: which of its
    secrets was shown, from 0 on.
    """

    tenant_id: int
    account_id: str
    key_id: str = ""
    limits: KeyLimits = NO_LIMITS
    pins: tuple[tuple[str, str], ...] = ()
    has_quota: bool = True
    scope: KeyScope = EVERYTHING
    rotation: int = 0


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """A key without its secret. `old_until`: until when the secret before the last rotation works; None: it does not."""

    key_id: str
    account_id: str
    name: str
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None
    limits: KeyLimits = NO_LIMITS
    pins: tuple[tuple[str, str], ...] = ()
    scope: KeyScope = EVERYTHING
    created_by: str | None = None
    old_until: datetime | None = None

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
    async with conn.transaction():
        row = await (await conn.execute(sql.CREATE_TENANT, {"account_id": account_id})).fetchone()
        if row is None:
            return None
        await log.record(conn, Record(Act.ACCOUNT_CREATE, account_id, account_id))
        return int(row[0])


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
    closed = await conn.execute(sql.CLOSE_TENANT, {"tenant_id": tenant_id})
    revoked = await conn.execute(sql.REVOKE_KEYS, {"tenant_id": tenant_id})
    if closed.rowcount:
        account_id = await account_id_of(conn, tenant_id)
        before = {"state": str(TenantState.ACTIVE)}
        after = {"state": str(TenantState.CLOSING), "keys_revoked": revoked.rowcount}
        await log.record(conn, Record(Act.ACCOUNT_DELETE, account_id, account_id, before=before, after=after))


async def closing(conn: Connection) -> list[Tenant]:
    """The tenants that are being deleted."""
    return [Tenant(*row) for row in await (await conn.execute(sql.CLOSING_TENANTS)).fetchall()]


async def every(conn: Connection) -> list[Tenant]:
    """All tenants, those that are being deleted included."""
    return [Tenant(*row) for row in await (await conn.execute(sql.EVERY)).fetchall()]


async def remove(conn: Connection, tenant_id: int) -> None:
    """Delete a closed tenant and its keys. Call inside a transaction. Raises ForeignKeyViolation while other rows refer to it."""
    account_id = await account_id_of(conn, tenant_id)
    await log.record(conn, Record(Act.ACCOUNT_REMOVED, account_id, account_id))
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
    async with _terms_change(conn, Act.ACCOUNT_SHARE, account_id, tenant_id):
        row = await (await conn.execute(sql.SET_SHARE, values)).fetchone()
    assert row is not None
    return float(row[0]), int(row[1])


async def set_retention(conn: Connection, account_id: str, days: int | None) -> None:
    """Keep this account's batches for at least so many days. None: as the settings say. Raises AccountUnknown."""
    tenant_id = await find_tenant(conn, account_id)
    async with _terms_change(conn, Act.ACCOUNT_RETENTION, account_id, tenant_id):
        await conn.execute(sql.SET_RETENTION, {"tenant_id": tenant_id, "days": days})


async def set_webhook_hosts(conn: Connection, account_id: str, hosts: Sequence[str] | None) -> None:
    """Allow webhooks of this account to these hosts only (`.example.com`: its subdomains). None: any host. Raises AccountUnknown.

    The rule also applies to existing endpoints, from their next attempt on.
    """
    tenant_id = await find_tenant(conn, account_id)
    values = {"tenant_id": tenant_id, "hosts": None if hosts is None else list(hosts)}
    async with _terms_change(conn, Act.ACCOUNT_WEBHOOK_HOSTS, account_id, tenant_id):
        await conn.execute(sql.SET_WEBHOOK_HOSTS, values)


@asynccontextmanager
async def _terms_change(conn: Connection, act: Act, account_id: str, tenant_id: int) -> AsyncIterator[None]:
    """A transaction that changes the terms of an account, with its record if they differ."""
    async with conn.transaction():
        earlier = await _terms(conn, tenant_id)
        yield
        before, after = changed(earlier, await _terms(conn, tenant_id))
        if after:
            await log.record(conn, Record(act, account_id, account_id, before=before, after=after))


async def _terms(conn: Connection, tenant_id: int) -> dict[str, object]:
    row = await (await conn.execute(sql.TERMS, {"tenant_id": tenant_id})).fetchone()
    return dict(zip(("weight", "max_inflight_tokens", "retention_days", "webhook_hosts"), row or (), strict=False))


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
    scope: KeyScope = USUAL,
    created_by: str | None = None,
) -> api_key.ApiKey:
    """Create a key for an account. Its secret is returned only here. `pins`, `scope`: see Tenant. `created_by`: who does it."""
    tenant_id = await ensure_tenant(conn, account_id)
    key = api_key.generate()
    parameters = {
        "key_id": key.key_id,
        "tenant_id": tenant_id,
        **key_rows.hashed(key, pepper),
        **key_rows.stored(scope),
        "created_by": created_by,
        "name": name,
        "lifetime": lifetime,
        "requests": limits.requests,
        "tokens": limits.tokens,
        "pins": [f"{name}={value}" for name, value in pins.items()] or None,
    }
    async with conn.transaction():
        if not (await conn.execute(sql.INSERT_KEY, parameters)).rowcount:
            raise _being_deleted(account_id)
        terms = {"name": name, "days": lifetime and lifetime.total_seconds() / 86_400, "pins": dict(pins)}
        terms |= {"requests_per_minute": limits.requests, "tokens_per_minute": limits.tokens}
        given = {name: value for name, value in (terms | described(scope)).items() if value}
        await log.record(conn, Record(Act.KEY_CREATE, key.key_id, account_id, after=given))
    return key


async def authenticate(conn: Connection, pepper: bytes, token: str) -> Tenant | None:
    """The tenant of a bearer token. None: the key is unknown, expired or revoked."""
    key = api_key.parse(token)
    if key is None:
        return None
    row = await (await conn.execute(sql.FIND_KEY, {"key_id": key.key_id})).fetchone()
    if row is None:
        return None
    secret, old, is_due, tenant_id, account_id, requests, tokens, pins, has_quota, rotation, *scope = row
    found = key_rows.matching(key, pepper, secret, old)
    if found is None:
        return None
    if is_due:
        await conn.execute(sql.TOUCH_KEY, {"key_id": key.key_id, "found": found, **key_rows.hashed(key, pepper)})
    limits, allowed = KeyLimits(requests, tokens), key_rows.scope_of(*scope)
    shown = rotation if found == secret else rotation - 1
    return Tenant(tenant_id, account_id, key.key_id, limits, key_rows.pins_of(pins), has_quota, allowed, shown)


async def rotate_key(conn: Connection, pepper: bytes, key_id: str, overlap: timedelta) -> api_key.ApiKey:
    """Give a key a new secret, which is returned only here. The old one works for `overlap` more; one before it, no longer.

    Id, limits and expiry stay. Raises NotFound if there is no such live key.
    """
    key = replace(api_key.generate(), key_id=key_id)
    values = {"key_id": key_id, "overlap": overlap, **key_rows.hashed(key, pepper)}
    async with conn.transaction():
        row = await (await conn.execute(sql.ROTATE_KEY, values)).fetchone()
        if row is None:
            raise NotFound(f"There is no live key {key_id}")
        before, after = (
            {"rotation": number, "old_secret_until": clock.iso(until)} for number, until in (row[:2], row[2:])
        )
        account = await account_of_key(conn, key_id)
        await log.record(conn, Record(Act.KEY_ROTATE, key_id, account, before=before, after=after))
    return key


async def keys_of_other_masters(conn: Connection, pepper: bytes) -> int:
    """How many live keys depend on a master key other than the one in use, or on one that is not known."""
    [(count,)] = await (await conn.execute(sql.COUNT_KEYS_OF_OTHERS, {"master_key": crypto.key_id(pepper)})).fetchall()
    return int(count)


async def live_keys(conn: Connection, shown: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Tenant]:
    """The tenants of those of these keys that are neither unknown, expired nor revoked. The caller has checked their secrets.

    A key is its id and the rotation of the secret that was shown: an old secret works until its overlap ends.
    """
    rows = await (await conn.execute(sql.FIND_KEYS, {"key_ids": [key_id for key_id, _ in shown]})).fetchall()
    found = {}
    for key_id, rotation, with_old, tenant_id, account_id, requests, tokens, *scope in rows:
        limits, allowed = KeyLimits(requests, tokens), key_rows.scope_of(*scope)
        for each in (rotation, rotation - 1) if with_old else (rotation,):
            found[key_id, each] = Tenant(tenant_id, account_id, key_id, limits, scope=allowed, rotation=each)
    return found


async def list_keys(conn: Connection, account: str | None = None) -> list[KeyInfo]:
    """Every key (of an account), oldest first."""
    rows = await (await conn.execute(sql.LIST_KEYS, {"account": account})).fetchall()
    return [_info(*row) for row in rows]


def _info(*row: Any) -> KeyInfo:
    terms: list[Any] = [KeyLimits(*row[7:9]), key_rows.pins_of(row[9]), key_rows.scope_of(*row[10:15]), *row[15:]]
    return KeyInfo(*row[:7], *terms)


async def has_key(conn: Connection, tenant_id: int, key_id: str) -> bool:
    """Whether the account has this key, and it is not revoked."""
    row = await (await conn.execute(sql.HAS_KEY, {"tenant_id": tenant_id, "key_id": key_id})).fetchone()
    return bool(row and row[0])


async def account_of_key(conn: Connection, key_id: str) -> str | None:
    """The account of a key, in any state. None: there is no such key."""
    row = await (await conn.execute(sql.ACCOUNT_OF_KEY, {"key_id": key_id})).fetchone()
    return None if row is None else str(row[0])


async def revoke_key(conn: Connection, key_id: str) -> bool:
    """Revoke a key. It takes effect everywhere within `key_cache.TRUST_SECONDS`. False: there is no such valid key."""
    async with conn.transaction():
        row = await (await conn.execute(sql.REVOKE_KEY, {"key_id": key_id})).fetchone()
        if row is None:
            return False
        before = {"name": row[1], "state": "live"}
        await log.record(conn, Record(Act.KEY_REVOKE, key_id, row[0], before=before, after={"state": "revoked"}))
        return True
