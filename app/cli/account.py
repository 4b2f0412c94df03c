"""`slackwater account …`: create, list, show and delete accounts, and set the limits of one. Works on the database."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from datetime import datetime
from typing import Annotated, Any

import typer

from app import clock, host_lists
from app.admission import quotas
from app.batches import accounts, key_rotation
from app.batches.accounts import Account
from app.batches.key_rotation import Rotation
from app.cli import tables
from app.cli.audited import Reason, on_database_recorded
from app.cli.database import acting, on_database
from app.cli.options import Json, console, settings
from app.db.pool import Connection, Database
from app.settings import Settings
from app.tenants import service as tenants
from app.user_errors import Failure, explained

app = typer.Typer(help="Create, list, show and delete accounts; set the limits of one account.", no_args_is_help=True)

_COLUMNS = ("account", "state", "keys", "webhooks", "files", "batches", "open", "created")
_WIDE = ("webhooks", "files", "created")

Name = Annotated[str, typer.Argument(metavar="NAME", help="name of the account, as it stands in URLs")]


@app.command("create")
def create(account: Name, reason: Reason = None, as_json: Json = False) -> None:
    """Create an account."""
    create_account(settings(), account, reason)
    hint = f"`slackwater key create --account {account}` creates a key for it."
    _confirm(account, f"Account {account} was created. {hint}", as_json)


@app.command("list")
def show_list(as_json: Json = False) -> None:
    """List the accounts and count what each of them has."""
    found = on_database(settings(), accounts.listing)
    if as_json:
        tables.document(console, [_document(account) for account in found])
    else:
        tables.show(console, _COLUMNS, map(_row, found), whole=("account", "state"), wide=_WIDE, numbers=_COLUMNS[2:7])


@app.command("show")
def show(account: Name, as_json: Json = False) -> None:
    """Show what an account has and which limits are set for it."""
    found = on_database(settings(), lambda conn: accounts.show(conn, account))
    if as_json:
        tables.document(console, _document(found))
    else:
        tables.facts(console, _described(found))


@app.command("delete")
def delete(
    account: Name,
    yes: Annotated[bool, typer.Option("--yes", help="delete without asking for confirmation")] = False,
    reason: Reason = None,
) -> None:
    """Delete an account and all it has: keys, webhooks, files, batches, results. Its running batches are cancelled."""
    current = settings()
    content = contents(current, account)
    if not yes:
        if not sys.stdin.isatty():
            raise Failure(
                f"Account {account} has {content}. All of it would be deleted.", "Add --yes to confirm the deletion."
            )
        typer.confirm(f"Account {account} has {content}. Delete all of it?", abort=True)
    close_account(current, account, reason)
    _confirm(
        account,
        f"Account {account} is being deleted: its keys are revoked, its webhooks disabled, its batches cancelled. "
        "A maintenance worker removes the rest; `slackwater account list` shows the account until then.",
    )


@app.command("retention")
def retention(
    account: Name,
    days: Annotated[
        int | None,
        typer.Argument(min=1, max=36500, help="least days to keep its batches; default: SLACKWATER_RETENTION_DAYS"),
    ] = None,
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Keep the batches of an account longer than SLACKWATER_RETENTION_DAYS."""
    kept = set_retention(settings(), account, days, reason)
    _confirm(account, f"The batches of {account} are kept {kept}.", as_json)


@app.command("webhook-hosts")
def webhook_hosts(
    account: Name,
    hosts: Annotated[
        list[str] | None,
        typer.Argument(help="host names; `.example.com` allows every host below it; default: any host"),
    ] = None,
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Restrict the webhooks of an account to these hosts. SLACKWATER_WEBHOOK_ALLOWED_HOSTS still applies."""
    set_webhook_hosts(settings(), account, hosts or (), reason)
    _confirm(account, f"The webhooks of {account} may go to {', '.join(hosts) if hosts else 'any host'}.", as_json)


@app.command("share")
def share(
    account: Name,
    weight: Annotated[
        float | None,
        typer.Option(min=0.001, max=1_000_000, help="share of the capacity, relative to other accounts"),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, max=10**15, help="limit of estimated tokens in flight, per model")
    ] = None,
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Set how much of the batch capacity an account gets. Without options, show it."""
    weight, max_tokens = set_share(settings(), account, weight, max_tokens, reason)
    if as_json:
        tables.document(console, {"account_id": account, "weight": weight, "max_inflight_tokens": max_tokens})
        return
    console.print(f"{account} has weight {weight:g} and at most {max_tokens} tokens in flight.")


_Limit = Annotated[str | None, typer.Option(metavar="NUMBER|none", help="limit; none removes it")]


@app.command("quota")
def quota(
    account: Name,
    open_batches: _Limit = None,
    open_items: _Limit = None,
    queued_tokens: _Limit = None,
    stored_bytes: _Limit = None,
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Set how much an account may have queued and stored. Without options, show it. What is stored already stays."""
    given = dict(zip(quotas.NAMES, (open_batches, open_items, queued_tokens, stored_bytes), strict=True))
    changes = {name: _limit(name, text) for name, text in given.items() if text}
    limits, used = set_quota(settings(), account, changes, reason)
    if as_json:
        tables.document(console, {"account_id": account, "limits": asdict(limits), "used": asdict(used)})
        return
    rows = [(name, asdict(limits)[name], asdict(used)[name]) for name in quotas.NAMES]
    shown = [(name, "none" if most is None else f"{most:,}", f"{now:,}") for name, most, now in rows]
    tables.show(console, ("quota", "limit", "used"), shown)


def _limit(name: str, text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal() or len(text) > 18:
        option = f"--{name.replace('_', '-')}"
        raise Failure(f"{option} {text}: not a limit.", f"Write a whole number from 0, or {option} none.")
    return int(text)


def set_quota(
    settings: Settings, account: str, changes: Mapping[str, int | None], reason: str | None = None
) -> tuple[quotas.Quota, quotas.Demand]:
    """Change these limits of an account. Returns its limits, and what it uses of them."""

    async def verb(conn: Connection) -> tuple[quotas.Quota, quotas.Demand]:
        tenant_id = await tenants.find_tenant(conn, account)
        limits = replace(await quotas.limits(conn, tenant_id), **changes)
        if changes:
            await quotas.change(conn, account, limits)
        return limits, await quotas.usage(conn, tenant_id)

    if not changes:
        return on_database(settings, verb)
    return on_database_recorded(settings, verb, reason)


@app.command("rotate-kek")
def rotate_kek(account: Name, reason: Reason = None, as_json: Json = False) -> None:
    """Give an account a new key at the key provider, wrap its data keys anew, and destroy the old key.

    What backups hold of the account's encrypted contents cannot be read from then on. It may be interrupted and repeated.
    """

    async def verb() -> Rotation:
        async with Database.of(settings(), "rotate-kek") as database:
            return await key_rotation.rotate(database, settings(), account)

    on_database_recorded(settings(), lambda conn: tenants.find_tenant(conn, account), reason)
    with explained(), acting(reason):
        done = asyncio.run(verb())
    if as_json:
        tables.document(console, asdict(done))
    else:
        text = f"{_count(done.rewrapped, 'data key')} of {account} wrapped anew; the key {done.destroyed} is destroyed."
        tables.sentence(console, text)


def create_account(settings: Settings, name: str, reason: str | None = None) -> None:
    """Create an account. Raises Failure if it exists or its name does not fit into a URL."""
    on_database_recorded(settings, lambda conn: tenants.create_tenant(conn, name), reason)


def has_account(settings: Settings, name: str) -> bool:
    """Whether the account exists. True also while it is being deleted."""
    return on_database(settings, lambda conn: tenants.exists(conn, name))


def contents(settings: Settings, name: str) -> str:
    """A summary of what an account has, such as `1 key, 2 webhooks, 0 files and 1 batch`. Raises Failure."""
    found = on_database(settings, lambda conn: accounts.show(conn, name))
    batches = _count(found.batches, "batch", "batches") + (
        f" ({found.open_batches} open)" if found.open_batches else ""
    )
    counts = [_count(found.keys, "key"), _count(found.webhooks, "webhook"), _count(found.files, "file")]
    return f"{', '.join(counts)} and {batches}"


def close_account(settings: Settings, name: str, reason: str | None = None) -> None:
    """Start to delete an account. Raises Failure."""
    on_database_recorded(settings, lambda conn: accounts.close(conn, name), reason)


def set_retention(settings: Settings, account: str, days: int | None, reason: str | None = None) -> str:
    """Keep an account's batches for at least `days`. Returns a phrase that says how long they are kept now."""
    on_database_recorded(settings, lambda conn: tenants.set_retention(conn, account, days), reason)
    if not settings.retention_days:
        return "for ever (SLACKWATER_RETENTION_DAYS is 0)"
    return f"{max(days or 0, settings.retention_days)} days from their end"


def set_webhook_hosts(settings: Settings, account: str, hosts: Sequence[str], reason: str | None = None) -> None:
    """Restrict an account's webhooks to these hosts. An empty list removes the restriction."""
    known = host_lists.parse(",".join(hosts)) or None
    on_database_recorded(settings, lambda conn: tenants.set_webhook_hosts(conn, account, known), reason)


def set_share(
    settings: Settings, account: str, weight: float | None, max_tokens: int | None, reason: str | None = None
) -> tuple[float, int]:
    """Set an account's share of the batch capacity. Returns its weight and its limit of tokens in flight."""

    async def verb(conn: Connection) -> tuple[float, int]:
        return await tenants.set_share(conn, account, weight, max_tokens)

    if weight is None and max_tokens is None:
        return on_database(settings, verb)
    return on_database_recorded(settings, verb, reason)


def _confirm(account: str, text: str, as_json: bool = False) -> None:
    """Print what was done, or with `--json` the account as it is now."""
    if as_json:
        show(account, as_json=True)
    else:
        console.print(text, markup=False, highlight=False)


def _row(account: Account) -> tuple[object, ...]:
    counts = account.keys, account.webhooks, account.files, account.batches, account.open_batches
    return account.account_id, account.state, *counts, tables.when(account.created_at, brief=console.is_terminal)


def _described(account: Account) -> dict[str, object]:
    days = account.retention_days
    return {
        "account": account.account_id,
        "state": account.state,
        "created": tables.when(account.created_at),
        "keys": f"{account.keys} that work",
        "webhooks": account.webhooks,
        "files": account.files,
        "batches": f"{account.batches}, {account.open_batches} of them open",
        "share": f"weight {account.weight:g}, at most {account.max_inflight_tokens:,} tokens in flight",
        "retention": f"{days} days at least" if days else "as SLACKWATER_RETENTION_DAYS says",
        "webhooks to": "any host" if account.webhook_hosts is None else ", ".join(account.webhook_hosts),
    }


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def _document(account: Account) -> dict[str, Any]:
    """An account as `--json` prints it, without our internal number."""
    values = {field.name: getattr(account, field.name) for field in fields(account) if field.name != "tenant_id"}
    return {name: clock.iso(value) if isinstance(value, datetime) else value for name, value in values.items()}
