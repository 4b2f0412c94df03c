"""Verbs on the database: accounts, API keys, subscriptions. Each opens one connection, does one thing, prints one answer."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

import psycopg
from rich.console import Console
from rich.table import Column, Table

from app import clock
from app.cli.text import plain
from app.crypto import secret_key
from app.db import embedded
from app.db.pool import Connection
from app.engines import catalogue
from app.engines import service as engines
from app.errors import BadInput
from app.failure import Failure, explained
from app.settings import Settings
from app.tenants import service as tenants
from app.webhooks import endpoints
from app.webhooks.egress import Egress

Answer = TypeVar("Answer")
_DAY = timedelta(days=1)


def _on_database(settings: Settings, verb: Callable[[Connection], Awaitable[Answer]]) -> Answer:
    """The answer of one verb on a connection of its own, in autocommit. Raises Failure."""

    async def call() -> Answer:
        async with await psycopg.AsyncConnection.connect(embedded.database_url(settings), autocommit=True) as conn:
            return await verb(conn)

    with explained():
        return asyncio.run(call())


def create_key(settings: Settings, account: str, name: str, days: int | None) -> str:
    """Make an API key; returns it, readable this once."""
    lifetime = None if days is None else _DAY * days
    pepper = secret_key(settings)

    async def verb(conn: Connection) -> str:
        async with conn.transaction():
            return str(await tenants.create_key(conn, pepper, account, name, lifetime))

    return _on_database(settings, verb)


def has_key(settings: Settings, account: str) -> bool:
    """Whether the account has a key that works."""
    now = clock.now()
    keys = _on_database(settings, tenants.list_keys)
    return any(key.account_id == account and key.state(now) == "live" for key in keys)


def list_keys(settings: Settings, console: Console) -> None:
    """Print every key without its secret."""
    now = clock.now()
    table = Table(Column("key id", no_wrap=True), "account", "name", "created", "last used", "expires", "state")
    for key in _on_database(settings, tenants.list_keys):
        dates = [
            f"{moment:%Y-%m-%d %H:%M}" if moment else "–"
            for moment in (key.created_at, key.last_used_at, key.expires_at)
        ]
        table.add_row(key.key_id, plain(key.account_id), plain(key.name), *dates, key.state(now))
    console.print(table)


def revoke_key(settings: Settings, key_id: str) -> None:
    """Make a key useless at once. `key_id` may also be the whole key."""
    plain = key_id.removeprefix("sk_sw_").partition("_")[0]
    if not _on_database(settings, lambda conn: tenants.revoke_key(conn, plain)):
        raise Failure(f"There is no live key {plain}.", "`slackwater key list` shows them.")


def set_retention(settings: Settings, account: str, days: int | None) -> str:
    """Keep an account's batches longer than others'. Returns how long they are kept now, in words."""
    _on_database(settings, lambda conn: tenants.set_retention(conn, account, days))
    if not settings.retention_days:
        return "for ever (SLACKWATER_RETENTION_DAYS is 0)"
    return f"{max(days or 0, settings.retention_days)} days from their end"


def set_share(settings: Settings, account: str, weight: float | None, max_tokens: int | None) -> tuple[float, int]:
    """Set what an account gets of the batch capacity; returns its weight and its cap of tokens in flight."""
    return _on_database(settings, lambda conn: tenants.set_share(conn, account, weight, max_tokens))


def engine_state(settings: Settings) -> str:
    """What the worker last said of this installation's engine; empty before it said anything."""
    found = [engine for engine in _on_database(settings, engines.list_engines) if engine.name == settings.engine_name]
    return " ".join([found[0].state, f"({found[0].reason})" if found[0].reason else ""]).strip() if found else ""


def create_subscription(
    settings: Settings, account: str, url: str, name: str, model: str | None, events: list[str]
) -> tuple[UUID, str]:
    """Register a webhook; returns its id and signing secret, readable this once."""
    known = catalogue.load(settings.models_file).resolve(model or "")
    if model is not None and known is None:
        raise Failure(f"No such model {model}.", "`slackwater model list` shows them.")

    async def verb(conn: Connection) -> tuple[UUID, str]:
        checked = await _checked_url(settings, url)
        async with conn.transaction():
            tenant_id = await tenants.ensure_tenant(conn, account)
        endpoint, secret = await endpoints.create(
            conn,
            key=secret_key(settings),
            tenant_id=tenant_id,
            name=name,
            url=checked,
            kinds=events,
            model=known.name if known else None,
        )
        return endpoint.endpoint_id, secret

    return _on_database(settings, verb)


async def _checked_url(settings: Settings, url: str) -> endpoints.CheckedUrl:
    """The URL, found fit. Raises Failure before an account is made for it."""
    try:
        async with Egress.of(settings) as egress:
            return await endpoints.checked_url(egress, url)
    except BadInput as refusal:
        local = (
            "For a receiver on this machine set SLACKWATER_WEBHOOK_ALLOW_PRIVATE=true; `slackwater up` runs with it."
        )
        raise Failure(refusal.message, "" if settings.webhook_allow_private else local) from refusal


def list_subscriptions(settings: Settings, account: str, console: Console) -> None:
    """Print the webhooks of an account."""

    async def verb(conn: Connection) -> list[endpoints.Endpoint]:
        found, _ = await endpoints.listing(conn, await tenants.find_tenant(conn, account), per_page=100)
        return found

    table = Table(Column("id", no_wrap=True), "name", "url", "model", "events", "state")
    for endpoint in _on_database(settings, verb):
        state = "enabled" if endpoint.enabled else f"disabled: {endpoint.disabled_reason or 'by its owner'}"
        model, events = endpoint.model or "all", "\n".join(endpoint.kinds)
        table.add_row(*map(plain, (endpoint.endpoint_id.hex, endpoint.name, endpoint.url, model, events, state)))
    console.print(table)


def delete_subscription(settings: Settings, account: str, subscription_id: UUID) -> None:
    """Remove a webhook with its pending deliveries."""

    async def verb(conn: Connection) -> None:
        await endpoints.delete(conn, await tenants.find_tenant(conn, account), subscription_id)

    _on_database(settings, verb)
