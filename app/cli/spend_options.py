"""What the reports on spend share: their options, how they read the ledger, and how they write money."""

from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Annotated, TypeVar

import typer

from app import clock
from app.cli.database import on_database
from app.cli.options import settings
from app.db.pool import Connection
from app.metering import periods, windows
from app.metering.periods import Period
from app.metering.reports import Scope
from app.tenants import service as tenants
from app.user_errors import Failure

T = TypeVar("T")

Since = Annotated[str, typer.Option(help="how far back, like 90m, 24h or 7d, or a period like last-week or 2026-11")]
Account = Annotated[str | None, typer.Option(help="only this account; without it, all accounts together")]
Tz = Annotated[str, typer.Option(help="time zone of days and months, such as that of a budget: Europe/Berlin")]


def listed(by: str, known: Sequence[str]) -> tuple[str, ...]:
    """The names of `--by`. Raises Failure for one that is not known."""
    names = tuple(name.strip() for name in by.split(",") if name.strip())
    if unknown := [name for name in names if name not in known]:
        raise Failure(f"--by {unknown[0]}: unknown.", f"Choose from {', '.join(known)}.")
    return names


def period(text: str, option: str = "--since", tz: str = "UTC") -> Period:
    """The period of this name in this time zone. Raises Failure if it is none."""
    try:
        where = windows.zone(tz)
    except ValueError as error:
        raise Failure(f"--tz {tz[:64]}: not a time zone.", f"{error}.") from error
    try:
        return periods.parse(text, clock.now(), where)
    except ValueError as error:
        raise Failure(f"{option} {text[:40]}: not a period of time.", f"{error}.") from error


def read(since: str, account: str | None, report: Callable[[Connection, Scope], Awaitable[T]], tz: str = "UTC") -> T:
    """A report on a period of an account, or of all. Raises Failure, AccountUnknown."""
    when = period(since, tz=tz)

    async def ask(conn: Connection) -> T:
        tenant_id = None if account is None else await tenants.find_tenant(conn, account)
        return await report(conn, Scope(*when, tenant_id, tz))

    return on_database(settings(), ask)


def money_text(cost: Decimal | None, currency: str | None) -> str | None:
    """An amount with as many places as it needs to show three digits; None: there is no price."""
    if cost is None:
        return None
    places = 2 if cost == 0 or cost >= 1 else min(12, 2 - cost.adjusted())
    return f"{cost:,.{places}f} {currency}"
