"""Accounts, straight on the database: made, looked at, deleted."""

from dataclasses import fields
from datetime import datetime
from typing import Any

from rich.console import Console

from app import clock
from app.batches import accounts
from app.batches.accounts import Account
from app.cli import tables
from app.cli.admin import on_database
from app.db.pool import Connection
from app.settings import Settings
from app.tenants import service as tenants

_COLUMNS = ("account", "state", "keys", "webhooks", "files", "batches", "open", "created")
_WIDE = ("webhooks", "files", "created")


def create(settings: Settings, name: str) -> None:
    """Make an account. Raises Failure: it exists, or its name does not fit into a URL."""
    on_database(settings, lambda conn: tenants.create_tenant(conn, name))


def show_all(settings: Settings, console: Console, *, as_json: bool) -> None:
    """Print every account."""
    found = on_database(settings, accounts.listing)
    if as_json:
        tables.document(console, [_document(account) for account in found])
    else:
        tables.show(console, _COLUMNS, map(_row, found), whole=("account", "state"), wide=_WIDE)


def _row(each: Account) -> tuple[object, ...]:
    counts = each.keys, each.webhooks, each.files, each.batches, each.open_batches
    return each.account_id, each.state, *counts, tables.when(each.created_at, brief=True)


def show(settings: Settings, name: str, console: Console, *, as_json: bool) -> None:
    """Print one account with what is set for it. Raises Failure."""
    found = on_database(settings, lambda conn: accounts.show(conn, name))
    if as_json:
        tables.document(console, _document(found))
        return
    kept = f"{found.retention_days} days at least" if found.retention_days else "as SLACKWATER_RETENTION_DAYS says"
    values: dict[str, object] = {
        "account": found.account_id,
        "state": found.state,
        "created": tables.when(found.created_at),
        "keys": f"{found.keys} that work",
        "webhooks": found.webhooks,
        "files": found.files,
        "batches": f"{found.batches}, {found.open_batches} of them open",
        "share": f"weight {found.weight:g}, at most {found.max_inflight_tokens:,} tokens in flight",
        "retention": kept,
        "webhooks to": "any host" if found.webhook_hosts is None else ", ".join(found.webhook_hosts),
    }
    tables.facts(console, values)


def contents(settings: Settings, name: str) -> str:
    """What an account has, in words. Raises Failure."""
    found = on_database(settings, lambda conn: accounts.show(conn, name))
    batches = _count(found.batches, "batch", "batches") + (
        f" ({found.open_batches} open)" if found.open_batches else ""
    )
    counts = [_count(found.keys, "key"), _count(found.webhooks, "webhook"), _count(found.files, "file")]
    return f"{', '.join(counts)} and {batches}"


def close(settings: Settings, name: str) -> None:
    """Begin to delete an account. Raises Failure."""

    async def verb(conn: Connection) -> None:
        async with conn.transaction():
            await accounts.close(conn, name)

    on_database(settings, verb)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def _document(account: Account) -> dict[str, Any]:
    """Every field but our own number."""
    values = {field.name: getattr(account, field.name) for field in fields(account) if field.name != "tenant_id"}
    return {name: clock.iso(value) if isinstance(value, datetime) else value for name, value in values.items()}
