"""`slackwater key …`: create, list and revoke the API keys of this installation. Works on the database."""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Annotated, Any

import typer

from app import clock
from app.cli import credentials, tables
from app.cli.account import has_account
from app.cli.database import on_database
from app.cli.options import Account, Json, console, errors, pairs, settings
from app.crypto import secret_key
from app.db.pool import Connection
from app.metering import spend_labels
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.rate_limits import NO_LIMITS, KeyLimits
from app.tenants.service import KeyInfo
from app.user_errors import Failure

app = typer.Typer(help="Create, list and revoke API keys.", no_args_is_help=True)

_COLUMNS = ("key id", "account", "name", "state", "last used", "created", "expires", "a minute", "pins")
_WIDE = ("created", "expires", "a minute", "pins")


@app.command("create")
def create(
    account: Account = "local",
    name: Annotated[str, typer.Option(help="what the key is for")] = "unnamed",
    days: Annotated[
        int | None, typer.Option(min=1, max=36500, help="days that the key is valid; default: until it is revoked")
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(min=1, max=2**31 - 1, help="limit of synchronous requests per minute; default: the settings"),
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="limit of synchronous tokens per minute, estimated on arrival")
    ] = None,
    pin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=VALUE", help="label of every request of the key, like workflow=billing; repeatable"
        ),
    ] = None,
    restore: Annotated[
        bool, typer.Option("--restore", help="the key reads the values behind placeholders in answers")
    ] = False,
    as_json: Json = False,
) -> None:
    """Create a key and print it. It is shown only once. The account is created if it does not exist."""
    current = settings()
    is_new = not has_account(current, account)
    key = create_key(current, account, name, days, KeyLimits(requests, tokens), _pins(pin), restore=restore)
    if as_json:
        tables.document(console, {"account": account, "key": key, "account_made": is_new})
        return
    if is_new:
        errors.print(f"Account {account} did not exist; it was created for this key.", markup=False, highlight=False)
    console.print(key, markup=False, highlight=False, soft_wrap=True)


@app.command("show")
def show(as_json: Json = False) -> None:
    """Print the API key that other commands use: `curl -H "Authorization: Bearer $(slackwater key show)" …`."""
    url, key = credentials.find(settings())
    if as_json:
        tables.document(console, {"url": url, "key": key})
    else:
        tables.raw(console, key)


@app.command("list")
def show_list(as_json: Json = False) -> None:
    """List the keys, without their secrets."""
    found = list_keys(settings())
    if as_json:
        tables.document(console, [_described(key) for key in found])
    else:
        tables.show(console, _COLUMNS, map(_row, found), whole=("key id", "state"), wide=_WIDE)


@app.command("revoke")
def revoke(key: Annotated[str, typer.Argument(help="key id, or the whole key")]) -> None:
    """Revoke a key. It stops working at once."""
    revoke_key(settings(), key)
    console.print("revoked")


def _pins(given: list[str] | None) -> dict[str, str]:
    pins = pairs(given)
    for label, value in pins.items():
        if (problem := spend_labels.check_pin(label, value)) is not None:
            raise Failure(f"--pin {label}={value}: {problem}.", "Write it like --pin workflow=billing.")
    return pins


def create_key(
    settings: Settings,
    account: str,
    name: str,
    days: int | None,
    limits: KeyLimits = NO_LIMITS,
    pins: Mapping[str, str] = MappingProxyType({}),
    *,
    restore: bool = False,
) -> str:
    """Create an API key and return it. It cannot be read again later."""
    lifetime = None if days is None else timedelta(days=days)
    pepper = secret_key(settings)

    async def verb(conn: Connection) -> str:
        async with conn.transaction():
            return str(await tenants.create_key(conn, pepper, account, name, lifetime, limits, pins, restore=restore))

    return on_database(settings, verb)


def has_key(settings: Settings, account: str) -> bool:
    """Whether the account has a live key."""
    now = clock.now()
    return any(key.account_id == account and key.state(now) == "live" for key in list_keys(settings))


def is_live(settings: Settings, account: str, key: str) -> bool:
    """Whether this is a key of the account, neither revoked nor expired. The secret is not checked."""
    now, key_id = clock.now(), _key_id(key)
    keys = list_keys(settings)
    return any((known.key_id, known.account_id, known.state(now)) == (key_id, account, "live") for known in keys)


def list_keys(settings: Settings) -> list[KeyInfo]:
    """Every key, without its secret. Raises Failure."""
    return on_database(settings, tenants.list_keys)


def revoke_key(settings: Settings, key_id: str) -> None:
    """Revoke a key at once. `key_id` may also be the whole key. Raises Failure if it is no live key."""
    plain = _key_id(key_id)
    if not on_database(settings, lambda conn: tenants.revoke_key(conn, plain)):
        raise Failure(f"There is no live key {plain}.", "`slackwater key list` shows them.")


def _key_id(key: str) -> str:
    return key.removeprefix("sk_sw_").partition("_")[0]


def _row(key: KeyInfo) -> tuple[object, ...]:
    brief = console.is_terminal
    used, made, ends = (
        tables.when(moment, brief=brief) for moment in (key.last_used_at, key.created_at, key.expires_at)
    )
    limits = [(key.limits.requests, "requests"), (key.limits.tokens, "tokens")]
    a_minute = ", ".join(f"{most:,} {what}" for most, what in limits if most is not None) or None
    return key.key_id, key.account_id, key.name, key.state(clock.now()), used, made, ends, a_minute, _shown(key.pins)


def _shown(pins: tuple[tuple[str, str], ...]) -> str | None:
    return ", ".join(f"{name}={value}" for name, value in pins) or None


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
        "pins": dict(key.pins),
        "restore": key.restore,
    }
