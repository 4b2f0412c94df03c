"""What the command line changes on the database itself. Each change is recorded with who made it, in its own transaction.

Once operators have tokens or sign in with OIDC, that is the usual way, and a change made here is break-glass: it needs a reason.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from app.access import operator_tokens
from app.cli.database import on_database
from app.db.pool import Connection
from app.settings import Settings
from app.user_errors import Failure

Answer = TypeVar("Answer")
Reason = Annotated[
    str | None, typer.Option(help="why; the audit log keeps it; needed once there are operators", show_default=False)
]
_LONGEST = 500


def on_database_recorded(
    settings: Settings, verb: Callable[[Connection], Awaitable[Answer]], reason: str | None = None
) -> Answer:
    """Call `verb` in a transaction. Returns its result. What it calls records itself, as done by the user of the command line and
    for this reason. Raises Failure.
    """

    async def call(conn: Connection) -> Answer:
        async with conn.transaction():
            await _check(conn, settings, reason)
            return await verb(conn)

    return on_database(settings, call, reason)


async def _check(conn: Connection, settings: Settings, reason: str | None) -> None:
    """Raise Failure for a change that needs a reason and has none."""
    if reason and len(reason) > _LONGEST:
        raise Failure(f"--reason: {len(reason)} characters, at most {_LONGEST} are kept.", "Shorten it.")
    if reason or not (settings.oidc_issuer or await operator_tokens.any_live(conn)):
        return
    raise Failure(
        "This installation has operators, so a change on the database itself needs a reason.",
        "Add --reason 'TICKET: why', or use the admin API: docs/access.md.",
    )
