"""`slackwater console`: run the web console; make one-time links to it; list and end its sessions."""

from datetime import datetime
from typing import Annotated

import typer

from app import clock
from app.access import origin, sessions
from app.access.roles import Grant, Role
from app.access.sessions import SessionInfo
from app.cli import tables
from app.cli.audited import Reason, on_database_recorded
from app.cli.data_dir_lock import running
from app.cli.database import on_database, user
from app.cli.options import Json, console, settings
from app.cli.parts import become
from app.db.pool import Connection
from app.quantities import duration
from app.tenants import service as tenants
from app.user_errors import Failure

app = typer.Typer(help="Run the web console; make one-time links to it; list and end its sessions.")
_COLUMNS = ("session", "who", "role", "account", "signed in", "last use")


@app.callback(invoke_without_command=True)
def run(context: typer.Context) -> None:
    """Run the web console, unless a command follows."""
    if context.invoked_subcommand is None:
        become("app.console")


@app.command("login")
def login(
    account: Annotated[str | None, typer.Option(help="account of a viewer or an admin")] = None,
    role: Annotated[Role | None, typer.Option(help="default: admin with --account, else operator")] = None,
    name: Annotated[str, typer.Option("--as", help="name of the person, as the audit log will show it")] = "",
    reason: Reason = None,
) -> None:
    """Print a link that signs one person in to the console, once, within five minutes."""
    chosen = role or (Role.ADMIN if account else Role.OPERATOR)
    if chosen.of_account and not account:
        raise Failure(
            f"A {chosen} is of one account.", "Name it: --account NAME. `slackwater account list` shows them."
        )
    if account and not chosen.of_account:
        raise Failure(f"An {chosen} is of the whole installation.", "Leave --account out, or choose viewer or admin.")

    async def invite(conn: Connection) -> str:
        tenant_id = await tenants.find_tenant(conn, account) if account else None
        return await sessions.invite(conn, Grant(name or user(), chosen, tenant_id))

    current = settings()
    token = on_database_recorded(current, invite, reason)
    owner = running(current.data_dir)
    place = (owner and owner.console) or origin.of(current)
    console.print(f"{place}/console/login?token={token}", soft_wrap=True, highlight=False, markup=False)


@app.command("sessions")
def show_sessions(as_json: Json = False) -> None:
    """List who is signed in."""
    found = on_database(settings(), sessions.listing)
    if as_json:
        tables.document(console, [_view(each) for each in found])
    else:
        tables.show(console, _COLUMNS, [_row(each, clock.now()) for each in found], whole=("session",))


@app.command("revoke")
def revoke(
    session: Annotated[int, typer.Argument(metavar="SESSION", help="number of the session")], reason: Reason = None
) -> None:
    """End a session at once."""

    async def end(conn: Connection) -> None:
        if not await sessions.revoke(conn, session):
            raise Failure(f"There is no live session {session}.", "`slackwater console sessions` lists them.")

    on_database_recorded(settings(), end, reason)
    console.print(f"Session {session} has ended.")


def _view(session: SessionInfo) -> dict[str, object]:
    return {
        "session": session.session_id,
        "subject": session.subject,
        "role": str(session.role),
        "account": session.account,
        "signed_in_at": clock.iso(session.signed_in_at),
        "seen_at": clock.iso(session.seen_at),
        "expires_at": clock.iso(session.expires_at),
    }


def _row(session: SessionInfo, now: datetime) -> tuple[str, ...]:
    def ago(moment: datetime) -> str:
        return f"{duration((now - moment).total_seconds())} ago"

    account = session.account or "all"
    return (
        str(session.session_id),
        session.subject,
        str(session.role),
        account,
        ago(session.signed_in_at),
        ago(session.seen_at),
    )
