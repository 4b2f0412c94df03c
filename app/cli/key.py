"""`slackwater key …`: the API keys of this installation. For operators: it works on the database."""

from typing import Annotated, Any

import typer

from app import clock
from app.cli import admin, credentials, tables
from app.cli.options import Account, Json, console, errors, settings
from app.tenants.rate_limits import KeyLimits
from app.tenants.service import KeyInfo

app = typer.Typer(help="Create, list and revoke API keys.", no_args_is_help=True)

_COLUMNS = ("key id", "account", "name", "state", "last used", "created", "expires", "a minute")
_WIDE = ("created", "expires", "a minute")


@app.command("create")
def create(
    account: Account = "local",
    name: Annotated[str, typer.Option(help="what the key is for")] = "unnamed",
    days: Annotated[
        int | None, typer.Option(min=1, max=36500, help="valid for so many days; without: until revoked")
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(min=1, max=2**31 - 1, help="synchronous requests a minute; without: as the settings say"),
    ] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="their tokens a minute, as estimated on arrival")] = None,
    as_json: Json = False,
) -> None:
    """Make a key and print it, this once. An account that does not exist yet is made for it, which is said."""
    current = settings()
    is_new = not admin.has_account(current, account)
    key = admin.create_key(current, account, name, days, KeyLimits(requests, tokens))
    if as_json:
        tables.document(console, {"account": account, "key": key, "account_made": is_new})
        return
    if is_new:
        errors.print(f"Account {account} did not exist; it was made for this key.", markup=False, highlight=False)
    console.print(key, markup=False, highlight=False, soft_wrap=True)


@app.command("show")
def show(as_json: Json = False) -> None:
    """Print the API key that the other commands use: `curl -H "Authorization: Bearer $(slackwater key show)" …`."""
    url, key = credentials.find(settings())
    if as_json:
        tables.document(console, {"url": url, "key": key})
    else:
        tables.raw(console, key)


@app.command("list")
def show_list(as_json: Json = False) -> None:
    """List keys without their secrets."""
    found = admin.list_keys(settings())
    if as_json:
        tables.document(console, [_described(key) for key in found])
    else:
        tables.show(console, _COLUMNS, map(_row, found), whole=("key id", "state"), wide=_WIDE)


@app.command("revoke")
def revoke(key: Annotated[str, typer.Argument(help="key id or whole key")]) -> None:
    """Make a key useless at once."""
    admin.revoke_key(settings(), key)
    console.print("revoked")


def _row(key: KeyInfo) -> tuple[object, ...]:
    brief = console.is_terminal
    used, made, ends = (
        tables.when(moment, brief=brief) for moment in (key.last_used_at, key.created_at, key.expires_at)
    )
    limits = [(key.limits.requests, "requests"), (key.limits.tokens, "tokens")]
    a_minute = ", ".join(f"{most:,} {what}" for most, what in limits if most is not None) or None
    return key.key_id, key.account_id, key.name, key.state(clock.now()), used, made, ends, a_minute


def _described(key: KeyInfo) -> dict[str, Any]:
    """A key as `--json` prints it."""
    return {
        "id": key.key_id,
        "account": key.account_id,
        "name": key.name,
        "state": key.state(clock.now()),
        "created_at": clock.iso(key.created_at),
        "last_used_at": clock.iso(key.last_used_at),
        "expires_at": clock.iso(key.expires_at),
        "requests_per_minute": key.limits.requests,
        "tokens_per_minute": key.limits.tokens,
    }
