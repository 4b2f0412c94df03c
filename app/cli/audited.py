"""What the command line changes on the database itself. Each change is recorded with who made it, in its own transaction.

Once operators have tokens or sign in with OIDC, that is the usual way, and a change made here is break-glass: it needs a reason.
"""

import getpass
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import typer

from app.access import audit, operator_tokens
from app.cli.database import on_database
from app.db.pool import Connection
from app.settings import Settings
from app.user_errors import Failure

Answer = TypeVar("Answer")
Reason = Annotated[
    str | None, typer.Option(help="why; the audit log keeps it; needed once there are operators", show_default=False)
]
BY_COMMAND = "command line"
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class Change:
    """What is done to which object. `account`: whose it is; None: the installation's. `detail`: what it is afterwards."""

    action: str
    target: str
    account: str | None = None
    detail: Mapping[str, Any] | None = None


def on_database_recorded(
    settings: Settings,
    change: Change | Callable[[Answer], Change],
    verb: Callable[[Connection], Awaitable[Answer]],
    reason: str | None = None,
) -> Answer:
    """Call `verb` in a transaction that also records the change. Returns its result. Raises Failure.

    `change` may depend on the result, for example on a new id.
    """

    async def call(conn: Connection) -> Answer:
        async with conn.transaction():
            await _check(conn, settings, reason)
            answer = await verb(conn)
            await add(conn, change(answer) if callable(change) else change, reason)
            return answer

    return on_database(settings, call)


async def add(conn: Connection, change: Change, reason: str | None) -> None:
    """Record a change of the command line."""
    entry = audit.Record(
        user(), BY_COMMAND, None, change.account, change.action, change.target, reason=reason, detail=change.detail
    )
    await audit.record(conn, entry)


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


def user() -> str:
    """Who runs the command, as the machine knows them."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without a name for its user
        return "unknown"
