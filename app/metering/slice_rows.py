"""The stored slices of budgets: what a process may spend on synchronous requests, as part of what the budget holds."""

from dataclasses import dataclass

from app.db.pool import Connection
from app.metering import budget_rules, budgets
from app.metering import budget_sql as sql
from app.metering.budget_rules import Budget, Unit


@dataclass(frozen=True, slots=True)
class Report:
    """What a process has used since its last report, and what it needs: `needed` now, `wanted` beside it.

    `number`: of the report, from 1. A report whose commit had an unknown outcome is repeated with its number. `counts`: what
    the amounts are of, as the process knows the budget. `beyond`: what its requests in an engine can cost beyond their holds.
    """

    budget_id: int
    writer: str
    number: int
    used: int
    needed: int
    wanted: int
    counts: tuple[Unit, str | None]
    beyond: int = 0


@dataclass(frozen=True, slots=True)
class Changed:
    """The slice after a report. `budget` None: the report had been stored before."""

    amount: int
    budget: Budget | None


async def write(conn: Connection, report: Report) -> Changed | None:
    """Store a report, once: what was used is spent, and the slice gets what is free of what it needs. Call inside a transaction.

    None: the budget does not exist any more, or its unit or currency has changed.
    """
    found = await budgets.locked(conn, [report.budget_id])
    if not found or found[0].counts != report.counts:
        return None
    values = {"budget_id": report.budget_id, "writer": report.writer, "number": report.number}
    row = await (await conn.execute(sql.SLICE, values)).fetchone()
    before, number = row or (0, 0)
    if number == report.number:
        return Changed(before, None)
    [(sliced,)] = await (await conn.execute(sql.SLICED, values)).fetchall()
    amount = new_amount(found[0], report, before, sliced)
    rows = await conn.execute(sql.REPORT, values | {"used": report.used, "change": amount - before})
    [changed] = await rows.fetchall()
    await conn.execute(sql.PUT_SLICE, values | {"amount": amount, "beyond": report.beyond})
    return Changed(amount, budgets.of_row(changed))


def new_amount(budget: Budget, report: Report, before: int, sliced: int) -> int:
    """The amount of a slice that had `before`, while all slices of the budget have `sliced`. Pure.

    It never takes more than is free. What is wanted but not needed now comes from the part that slices may hold together.
    """
    left = max(0, before - report.used)
    room = max(0, budget_rules.slices_most(budget.max) - (sliced - before) - report.needed)
    target = report.needed + min(report.wanted, room)
    if target <= left:
        return target
    free = budget.max - (budget.spent + report.used) - (budget.held - before + left)
    return left + max(0, min(target - left, free))
