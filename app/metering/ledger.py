"""The ledger: books what requests used, by hour and line."""

from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime

from app.db.pool import Connection
from app.metering import budget_sql, sql
from app.metering.tables import COUNTS


@dataclass(frozen=True, slots=True)
class Booking:
    """Usage to be added to one hour of a line. `prompt`, `cached` and `output` are tokens; cached ones are part of the prompt.

    `repeats`: results of a batch's second or later run. `retried`: results that took more than one attempt.
    """

    hour: datetime
    line_id: int
    requests: int
    ok: int
    prompt: int
    cached: int
    output: int
    repeats: int = 0
    retried: int = 0
    retried_ok: int = 0
    yields: int = 0


async def book(conn: Connection, bookings: Sequence[Booking]) -> None:
    """Add the bookings to the usage. Call inside the transaction that removes what they were counted from."""
    if bookings:
        columns = zip(*map(astuple, bookings), strict=True)
        names = ("hour", "line_id", *COUNTS)
        await conn.execute(sql.BOOK, {name: list(values) for name, values in zip(names, columns, strict=True)})


async def existing(conn: Connection, tenant_ids: Collection[int]) -> set[int]:
    """Those of the accounts that are not deleted."""
    rows = await conn.execute(sql.EXISTING, {"tenant_ids": list(tenant_ids)})
    return {tenant_id for (tenant_id,) in await rows.fetchall()}


async def forget_writers(conn: Connection) -> None:
    """Remove the numbers of processes that have ended long ago."""
    await conn.execute(sql.FORGET_WRITERS)


async def forget(conn: Connection, tenant_id: int) -> None:
    """Remove the budgets, the lines and the usage of an account that is being deleted. Call inside a transaction."""
    for statement in (*budget_sql.FORGET, *sql.FORGET):
        await conn.execute(statement, {"tenant_id": tenant_id})
