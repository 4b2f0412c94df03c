"""Reports on the ledger: usage and cost by any part of a line, and the comparison of the ledger with the queue."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from app.db.pool import Connection
from app.metering import sql

DIMENSIONS = tuple(sql.DIMENSIONS)
USUAL = ("workflow", "model")


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Usage of one group. `group`: its values in the order of the dimensions. `cost`: None if the models have no price.

    The counts are those of `app.metering.ledger.Booking`.
    """

    group: tuple[str, ...]
    currency: str | None
    cost: Decimal | None
    requests: int
    ok: int
    prompt: int
    cached: int
    output: int
    repeats: int
    retried: int
    retried_ok: int
    yields: int


@dataclass(frozen=True, slots=True)
class Difference:
    """A count of an account that differs between the ledger and the queue."""

    account_id: str
    count: str
    ledger: int
    queue: int


async def usage(
    conn: Connection, by: Sequence[str], since: datetime, until: datetime, tenant_id: int | None = None
) -> list[UsageRow]:
    """Usage in the hours that begin within [since, until), the most expensive group first. `by`: of DIMENSIONS. `tenant_id` None:
    all accounts.
    """
    values = {"since": since, "until": until, "tenant_id": tenant_id}
    rows = await (await conn.execute(sql.report(tuple(by)), values)).fetchall()
    parts = len(by)
    return [UsageRow(tuple(row[:parts]), *row[parts:]) for row in rows]


async def check(conn: Connection) -> list[Difference]:
    """Where the usage of queued work is not what the queue has counted. Both are read in one snapshot."""
    rows = await (await conn.execute(sql.CHECK)).fetchall()
    return [Difference(*row) for row in rows]
