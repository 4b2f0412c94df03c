"""`slackwater key …`: create, rotate, list and revoke the API keys of this installation. Works on the database."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Annotated, Any

import typer

from app import clock
from app.admission import key_terms
from app.cli import credentials, tables
from app.cli.account import has_account
from app.cli.audited import Reason, on_database_recorded
from app.cli.database import on_database, user
from app.cli.options import Account, Json, console, errors, pairs, settings
from app.crypto import secret_key
from app.db.pool import Connection
from app.engines import catalogue
from app.engines.model_registry import with_adopted
from app.metering import spend_labels
from app.quantities import seconds_of
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.api_key import ApiKey
from app.tenants.key_scope import USUAL, KeyLimits, KeyRole, KeyScope, described
from app.tenants.rate_limits import NO_LIMITS
from app.tenants.service import KeyInfo
from app.user_errors import Failure, explained

app = typer.Typer(help="Create, rotate, list and revoke API keys.", no_args_is_help=True)

_COLUMNS = (
    "key id",
    "account",
    "name",
    "role",
    "state",
    "last used",
    "created",
    "expires",
    "limited to",
    "a minute",
    "pins",
)
_WIDE = ("created", "expires", "limited to", "a minute", "pins")
_LONGEST_OVERLAP = 30 * 86_400.0


_Role = Annotated[
    KeyRole, typer.Option(help="viewer: no prompt, no answer; submitter: no webhook, no budget; admin: these, too")
]
_Models = Annotated[list[str] | None, typer.Option(help="only this model may be asked for; repeatable")]
_Endpoints = Annotated[
    list[str] | None, typer.Option(help="only this route of engines, like /v1/embeddings; repeatable")
]
_Networks = Annotated[list[str] | None, typer.Option(help="only from this network, like 10.1.0.0/16; repeatable")]


@app.command("create")
def create(
    account: Account = "local",
    name: Annotated[str, typer.Option(help="what the key is for")] = "unnamed",
    role: _Role = KeyRole.SUBMITTER,
    model: _Models = None,
    endpoint: _Endpoints = None,
    network: _Networks = None,
    restore: Annotated[bool, typer.Option("--restore", help="reads what redaction has replaced")] = False,
    expires: Annotated[
        str | None, typer.Option(help="when it expires: after 90d, or with the day 2027-03-31; default: never")
    ] = None,
    days: Annotated[int | None, typer.Option(min=1, max=36500, help="the same as --expires, in days")] = None,
    requests: Annotated[
        int | None,
        typer.Option(min=1, max=2**31 - 1, help="limit of synchronous requests per minute; default: the settings"),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(min=1, max=2**63 - 1, help="limit of synchronous tokens per minute, estimated on arrival"),
    ] = None,
    pin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=VALUE", help="label of every request of the key, like workflow=billing; repeatable"
        ),
    ] = None,
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Create a key and print it. It is shown only once. The account is created if it does not exist."""
    current = settings()
    is_new = not has_account(current, account)
    limits = {"models": model, "endpoints": endpoint, "networks": network}
    scope = _scope(current, role=role.value, restore=restore, **limits)
    key = create_key(
        current, account, name, _days(days, expires), KeyLimits(requests, tokens), _pins(pin), scope, reason
    )
    if as_json:
        made = {"id": _key_id(key), "account": account, "name": name, "role": role.value}
        tables.document(console, made | {"key": key, "account_made": is_new})
        return
    if is_new:
        errors.print(f"Account {account} did not exist; it was created for this key.", markup=False, highlight=False)
    console.print(key, markup=False, highlight=False, soft_wrap=True)


@app.command("rotate")
def rotate(
    key: Annotated[str, typer.Argument(help="key id, or the whole key")],
    overlap: Annotated[str, typer.Option(help="how long the old secret still works, like 24h; 0s: not at all")] = "24h",
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Give a key a new secret and print it. Its id, limits and expiry stay; the old secret works until the overlap ends."""
    seconds, key_id = seconds_of(overlap), _key_id(key)
    if seconds is None or seconds > _LONGEST_OVERLAP:
        raise Failure(f"--overlap {overlap}: not a length of time up to 30d.", "Write it like 24h or 7d.")
    made, until = rotate_key(settings(), key_id, timedelta(seconds=seconds), reason)
    if as_json:
        tables.document(console, {"id": key_id, "key": made, "old_until": clock.iso(until)})
        return
    console.print(made, markup=False, highlight=False, soft_wrap=True)
    errors.print(f"The old secret works until {until:%Y-%m-%d %H:%M} UTC.", markup=False, highlight=False)


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
def revoke(key: Annotated[str, typer.Argument(help="key id, or the whole key")], reason: Reason = None) -> None:
    """Revoke a key. It stops working at once."""
    revoke_key(settings(), key, reason)
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
    days: float | None,
    limits: KeyLimits = NO_LIMITS,
    pins: Mapping[str, str] = MappingProxyType({}),
    scope: KeyScope = USUAL,
    reason: str | None = None,
) -> str:
    """Create an API key and return it. It cannot be read again later. `days`: how long it lives; None: until it is revoked."""
    lifetime = None if days is None else timedelta(days=days)
    pepper = secret_key(settings)

    async def verb(conn: Connection) -> ApiKey:
        return await tenants.create_key(conn, pepper, account, name, lifetime, limits, pins, scope, user())

    return str(on_database_recorded(settings, verb, reason))


def rotate_key(settings: Settings, key_id: str, overlap: timedelta, reason: str | None = None) -> tuple[str, datetime]:
    """Give a key a new secret. Returns the key, and until when the old secret works. Raises Failure if it is no live key."""
    _live(settings, key_id)
    pepper, until = secret_key(settings), clock.now() + overlap
    made = on_database_recorded(settings, lambda conn: tenants.rotate_key(conn, pepper, key_id, overlap), reason)
    return str(made), until


def _scope(settings: Settings, **given: Any) -> KeyScope:
    """The scope of these options. Raises Failure."""
    models = catalogue.load(settings.models_file)
    if given["models"]:
        file = models
        models = on_database(settings, lambda conn: with_adopted(conn, file))
    with explained():
        return key_terms.scope_of(models, **given)


def _days(days: int | None, expires: str | None) -> float | None:
    if days is not None and expires is not None:
        raise Failure("--days and --expires say the same.", "Leave one of them out.")
    with explained():
        return days if expires is None else key_terms.lifetime_of(expires, clock.now()) / timedelta(days=1)


def _live(settings: Settings, key_id: str) -> KeyInfo:
    """A live key. Raises Failure if there is none of this id."""
    now = clock.now()
    for key in list_keys(settings):
        if key.key_id == key_id and key.state(now) == "live":
            return key
    raise Failure(f"There is no live key {key_id}.", "`slackwater key list` shows them.")


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


def revoke_key(settings: Settings, key_id: str, reason: str | None = None) -> None:
    """Revoke a key at once. `key_id` may also be the whole key. Raises Failure if it is no live key."""
    found = _live(settings, _key_id(key_id))
    on_database_recorded(settings, lambda conn: tenants.revoke_key(conn, found.key_id), reason)


def _key_id(key: str) -> str:
    return key.removeprefix("sk_sw_").partition("_")[0]


def _row(key: KeyInfo) -> tuple[object, ...]:
    brief = console.is_terminal
    used = tables.last_used(key.last_used_at, brief=brief)
    made, ends = (tables.when(moment, brief=brief) for moment in (key.created_at, key.expires_at))
    limits = [(key.limits.requests, "requests"), (key.limits.tokens, "tokens")]
    a_minute = ", ".join(f"{most:,} {what}" for most, what in limits if most is not None) or None
    limited = [*(key.scope.models or ()), *(key.scope.endpoints or ()), *map(str, key.scope.networks or ())]
    state, role = key.state(clock.now()), key.scope.role.value
    return (
        *(key.key_id, key.account_id, key.name, role, state, used, made, ends),
        *(", ".join(sorted(limited)) or None, a_minute, _shown(key.pins)),
    )


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
        **described(key.scope),
        "created_by": key.created_by,
        "old_secret_until": clock.iso(key.old_until),
    }
