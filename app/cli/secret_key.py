"""`slackwater secret-key …`: what depends on an earlier secret key, and sealing it anew. Works on the database."""

from dataclasses import dataclass

import typer

from app import crypto
from app.access import operator_tokens
from app.cli import tables
from app.cli.audited import Reason, on_database_recorded
from app.cli.database import on_database
from app.cli.options import Json, console, settings
from app.db.pool import Connection
from app.tenants import service as tenants
from app.webhooks import resealing
from app.webhooks.resealing import Sealed

app = typer.Typer(help="Change the secret key: see what depends on an earlier one.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class Dependent:
    """What needs a master key other than the one in use."""

    keys: int
    tokens: int
    webhooks: Sealed

    @property
    def any(self) -> bool:
        """Whether an earlier master key must still be accepted."""
        return bool(self.keys or self.tokens or self.webhooks.other)


@app.command("status")
def status(as_json: Json = False) -> None:
    """Show what depends on an earlier secret key. The exit code is 1 while something does."""
    key = crypto.secret_key(settings())
    found = on_database(settings(), lambda conn: _look(conn, key))
    if as_json:
        tables.document(console, _document(key, found))
    else:
        rows = [
            ("API keys not used since the change", found.keys),
            ("operators' tokens not used since the change", found.tokens),
            ("webhook secrets to seal anew", found.webhooks.other),
            ("webhook secrets that no accepted key opens", found.webhooks.unreadable),
        ]
        tables.show(console, ("under an earlier secret key", "count"), rows, numbers=("count",))
        _advise(found)
    raise typer.Exit(1 if found.any else 0)


@app.command("reseal")
def reseal(reason: Reason = None, as_json: Json = False) -> None:
    """Seal the secrets of webhooks under the secret key in use. API keys and tokens follow at their next use."""
    key = crypto.secret_key(settings())

    async def verb(conn: Connection) -> Dependent:
        before = await resealing.reseal(conn, key)
        after = await _look(conn, key)
        return Dependent(after.keys, after.tokens, Sealed(before.other + before.current, 0, before.unreadable))

    found = on_database_recorded(settings(), verb, reason)
    if as_json:
        tables.document(console, _document(key, found))
        return
    tables.sentence(
        console, f"{found.webhooks.current} webhook secrets are sealed under the secret key in use.", "green"
    )
    _advise(found)


async def _look(conn: Connection, key: bytes) -> Dependent:
    keys, tokens = await tenants.keys_of_other_masters(conn, key), await operator_tokens.of_other_masters(conn, key)
    return Dependent(keys, tokens, await resealing.look(conn, key))


def _advise(found: Dependent) -> None:
    if found.webhooks.other:
        tables.sentence(console, "`slackwater secret-key reseal` seals the webhook secrets anew.")
    if found.keys or found.tokens:
        tables.sentence(console, "A key follows at its next use. Rotate or revoke one that is never used.")
    if found.webhooks.unreadable:
        tables.sentence(console, "Rotate the secrets that no key opens; their webhooks cannot be signed.")
    if not found.any:
        tables.sentence(console, "Nothing needs an earlier secret key.", "green")


def _document(key: bytes, found: Dependent) -> dict[str, object]:
    return {
        "secret_key": crypto.key_id(key),
        "api_keys_of_others": found.keys,
        "operator_tokens_of_others": found.tokens,
        "webhooks_of_others": found.webhooks.other,
        "webhooks_unreadable": found.webhooks.unreadable,
    }
