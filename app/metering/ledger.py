"""The ledger: books what requests used, by hour and line."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from app.db.pool import Connection
from app.metering import lines, sketch, sql
from app.metering.lines import UNQUEUED
from app.usage_counts import COUNTS, UsageCounts

HOURS_KEPT_DAYS = 35  # then the hours of a day become one row
DAYS_KEPT_DAYS = 400  # 13 months


@dataclass(frozen=True, slots=True)
class Booking:
    """Usage to be added to one hour of a line. `first_tokens`, `durations`: one byte for each time, its bucket in `sketch`."""

    hour: datetime
    line_id: int
    counts: UsageCounts
    first_tokens: bytes = b""
    durations: bytes = b""


async def book(conn: Connection, bookings: Sequence[Booking]) -> None:
    """Add the bookings to the usage. Call inside the transaction that removes what they were counted from."""
    if bookings:
        values: dict[str, list[object]] = {name: [getattr(b.counts, name) for b in bookings] for name in COUNTS}
        values |= {"hour": [b.hour for b in bookings], "line_id": [b.line_id for b in bookings]}
        values |= {"first_token": [_literal(b.first_tokens) for b in bookings]}
        await conn.execute(sql.BOOK, values | {"duration": [_literal(b.durations) for b in bookings]})


def _literal(buckets: bytes) -> str | None:
    """The sketch of these times as the text of an array, since an array of arrays would have to be of one size. None: no time."""
    return f"{{{','.join(map(str, sketch.counted(buckets)))}}}" if buckets else None


async def existing(conn: Connection, tenant_ids: Collection[int]) -> set[int]:
    """Those of the accounts that are not deleted."""
    rows = await conn.execute(sql.EXISTING, {"tenant_ids": list(tenant_ids)})
    return {tenant_id for (tenant_id,) in await rows.fetchall()}


async def forget_writers(conn: Connection) -> None:
    """Remove the numbers of processes that have ended long ago."""
    await conn.execute(sql.FORGET_WRITERS)


async def keep(conn: Connection, now: datetime) -> bool:
    """Add up one old day, which keeps its sums for DAYS_KEPT_DAYS. Call inside a transaction. Returns whether there was one."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    before = {"before": today - timedelta(days=HOURS_KEPT_DAYS)}
    row = await (await conn.execute(sql.OLDEST_DAY, before)).fetchone()
    if row is not None and row[0] is not None:
        await conn.execute(sql.ROLL_UP, {"day": row[0]})
        return True
    values = {"before": today - timedelta(days=DAYS_KEPT_DAYS), "unqueued": list(UNQUEUED)}
    await conn.execute(sql.DROP_DAYS, values)
    return False


async def forget(conn: Connection, tenant_id: int) -> None:
    """Remove the lines and the usage of an account that is being deleted. Call inside a transaction."""
    for statement in sql.FORGET:
        await conn.execute(statement, {"tenant_id": tenant_id})


async def note_check(conn: Connection, drift: int) -> None:
    """Note the result of a check, and how far the labels of accounts are used up. `drift`: the sum of all differences between the
    ledger and the queue, without their signs.
    """
    limits = {"keys": lines.KEYS, "lines": lines.MOST_LINES, "workflows": lines.MOST_WORKFLOWS}
    limits |= {"tasks": lines.MOST_TASKS, "variants": lines.MOST_VARIANTS, "families": lines.MOST_FAMILIES}
    await conn.execute(sql.NOTE_CHECK, limits | {"drift": drift})


async def gauges(conn: Connection) -> list[tuple[str, str, float]]:
    """The gauges of the last check: (name, label, value). Empty: there was none yet."""
    return [tuple(row) for row in await (await conn.execute(sql.GAUGES)).fetchall()]
