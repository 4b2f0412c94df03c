"""`slackwater operator …`: create, list and revoke the tokens of operators. Works on the database."""

from typing import Annotated

import typer

from app import clock
from app.access import operator_tokens
from app.access.operator_tokens import TokenInfo
from app.access.roles import Role
from app.admission import key_terms
from app.cli import tables
from app.cli.audited import Reason, on_database_recorded
from app.cli.database import on_database, user
from app.cli.options import Json, console, errors, settings
from app.crypto import secret_key
from app.db.pool import Connection
from app.user_errors import Failure, explained

app = typer.Typer(help="Create, list and revoke tokens of operators, for the admin API.", no_args_is_help=True)
_COLUMNS = ("token id", "name", "role", "state", "expires", "last used", "created", "by")


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="the person or the program, as the audit log will show it")],
    role: Annotated[str, typer.Option(help="operator: sees and acts; auditor: only sees")] = "operator",
    expires: Annotated[str, typer.Option(help="when it expires: after 30d, or with the day 2027-03-31")] = "90d",
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Create a token and print it. It is shown only once, and lives 90 days at most."""
    if role not in operator_tokens.ROLES:
        raise Failure(f"--role {role}: not a role of operators.", "Choose operator or auditor.")
    if not 1 <= len(name) <= 100 or not name.isprintable():
        raise Failure("The name must have 1 to 100 printable characters.", "Name a person or a program.")
    current, chosen = settings(), Role(role)
    with explained():
        lifetime = key_terms.lifetime_of(expires, clock.now())
    pepper = secret_key(current)

    async def verb(conn: Connection) -> tuple[str, str]:
        return await operator_tokens.create(conn, pepper, name, chosen, lifetime, user())

    token_id, token = on_database_recorded(current, verb, reason)
    if as_json:
        tables.document(console, {"id": token_id, "token": token})
        return
    console.print(token, markup=False, highlight=False, soft_wrap=True)
    errors.print(f"Token {token_id} of {name} is shown only here.", markup=False, highlight=False)


@app.command("list")
def show_list(as_json: Json = False) -> None:
    """List the tokens, without their secrets."""
    found = on_database(settings(), operator_tokens.listing)
    if as_json:
        tables.document(console, [_document(token) for token in found])
    else:
        tables.show(console, _COLUMNS, map(_row, found), whole=("token id", "state"), wide=("created", "by"))


@app.command("revoke")
def revoke(token: Annotated[str, typer.Argument(help="token id, or the whole token")], reason: Reason = None) -> None:
    """Revoke a token. It stops working at once."""
    token_id = token.removeprefix(operator_tokens.PREFIX).partition("_")[0]

    async def verb(conn: Connection) -> None:
        if not await operator_tokens.revoke(conn, token_id):
            raise Failure(f"There is no live token {token_id}.", "`slackwater operator list` shows them.")

    on_database_recorded(settings(), verb, reason)
    console.print("revoked")


def _row(token: TokenInfo) -> tuple[object, ...]:
    brief = console.is_terminal
    used = tables.last_used(token.last_used_at, brief=brief)
    ends, made = (tables.when(moment, brief=brief) for moment in (token.expires_at, token.created_at))
    return token.token_id, token.name, token.role, token.state(clock.now()), ends, used, made, token.created_by


def _document(token: TokenInfo) -> dict[str, object]:
    return {
        "id": token.token_id,
        "name": token.name,
        "role": token.role,
        "state": token.state(clock.now()),
        "created_by": token.created_by,
        "created_at": clock.iso(token.created_at),
        "expires_at": clock.iso(token.expires_at),
        "last_used_at": clock.iso(token.last_used_at),
    }
