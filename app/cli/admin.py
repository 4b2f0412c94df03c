"""Verbs on the database: accounts and API keys. Each opens one connection and does one thing."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar

import psycopg

from app import clock
from app.crypto import secret_key
from app.db import embedded
from app.db.pool import Connection
from app.engines import service as engines
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.rate_limits import NO_LIMITS, KeyLimits
from app.tenants.service import KeyInfo
from app.user_errors import Failure, explained
from app.webhooks.egress import parse_hosts

Answer = TypeVar("Answer")
_DAY = timedelta(days=1)


def on_database(settings: Settings, verb: Callable[[Connection], Awaitable[Answer]]) -> Answer:
    """The answer of one verb on a connection of its own, in autocommit. Raises Failure."""

    async def call() -> Answer:
        async with await psycopg.AsyncConnection.connect(embedded.database_url(settings), autocommit=True) as conn:
            return await verb(conn)

    with explained():
        return asyncio.run(call())


def create_key(settings: Settings, account: str, name: str, days: int | None, limits: KeyLimits = NO_LIMITS) -> str:
    """Make an API key; returns it, readable this once."""
    lifetime = None if days is None else _DAY * days
    pepper = secret_key(settings)

    async def verb(conn: Connection) -> str:
        async with conn.transaction():
            return str(await tenants.create_key(conn, pepper, account, name, lifetime, limits))

    return on_database(settings, verb)


def has_key(settings: Settings, account: str) -> bool:
    """Whether the account has a key that works."""
    now = clock.now()
    return any(key.account_id == account and key.state(now) == "live" for key in list_keys(settings))


def works(settings: Settings, account: str, key: str) -> bool:
    """Whether this is a key of the account that is neither revoked nor expired. Its secret is not checked."""
    now, key_id = clock.now(), _key_id(key)
    keys = on_database(settings, tenants.list_keys)
    return any((known.key_id, known.account_id, known.state(now)) == (key_id, account, "live") for known in keys)


def _key_id(key: str) -> str:
    return key.removeprefix("sk_sw_").partition("_")[0]


def has_account(settings: Settings, account: str) -> bool:
    """Whether there is such an account, one that is being deleted included."""
    return on_database(settings, lambda conn: tenants.exists(conn, account))


def list_keys(settings: Settings) -> list[KeyInfo]:
    """Every key without its secret. Raises Failure."""
    return on_database(settings, tenants.list_keys)


def revoke_key(settings: Settings, key_id: str) -> None:
    """Make a key useless at once. `key_id` may also be the whole key."""
    plain = _key_id(key_id)
    if not on_database(settings, lambda conn: tenants.revoke_key(conn, plain)):
        raise Failure(f"There is no live key {plain}.", "`slackwater key list` shows them.")


def set_retention(settings: Settings, account: str, days: int | None) -> str:
    """Keep an account's batches longer than others'. Returns how long they are kept now, in words."""
    on_database(settings, lambda conn: tenants.set_retention(conn, account, days))
    if not settings.retention_days:
        return "for ever (SLACKWATER_RETENTION_DAYS is 0)"
    return f"{max(days or 0, settings.retention_days)} days from their end"


def set_webhook_hosts(settings: Settings, account: str, hosts: Sequence[str]) -> None:
    """Let an account's webhooks go to these hosts only; none: to any that the settings allow."""
    known = parse_hosts(",".join(hosts)) or None
    on_database(settings, lambda conn: tenants.set_webhook_hosts(conn, account, known))


def set_share(settings: Settings, account: str, weight: float | None, max_tokens: int | None) -> tuple[float, int]:
    """Set what an account gets of the batch capacity; returns its weight and its cap of tokens in flight."""
    return on_database(settings, lambda conn: tenants.set_share(conn, account, weight, max_tokens))


def engine_state(settings: Settings) -> str:
    """What the worker last said of this installation's engine; empty before it said anything."""
    found = [engine for engine in on_database(settings, engines.list_engines) if engine.name == settings.engine_name]
    return " ".join([found[0].state, f"({found[0].reason})" if found[0].reason else ""]).strip() if found else ""
