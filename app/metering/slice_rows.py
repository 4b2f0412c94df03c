"""The stored slices of budgets: what a process may spend on synchronous requests, as part of what the budget holds."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from app.db.pool import Connection, Database
from app.metering import budget_rules, budgets
from app.metering import budget_sql as sql
from app.metering.budget_rules import Budget, Unit

OnChange = Callable[[Connection, Sequence[Budget]], Awaitable[None]]


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


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a report makes of its budget and slice, if the budget is still in this version."""

    budget: Budget
    version: str
    before: int
    amount: int


async def write(database: Database, report: Report, on_change: OnChange) -> Changed | None:
    """Store a report, once: what was used is spent, and the slice gets what is free of what it needs.

    `on_change` is called in the transaction that makes the budget reach a threshold. Otherwise it is one statement, so nobody
    waits for a process that stops in the middle. None: the budget does not exist any more, or its unit or currency has changed.
    """
    while True:
        async with database.durable() as conn:
            plan = await _plan(conn, report)
            if not isinstance(plan, _Plan):
                return plan
            crosses = bool(budget_rules.crossed(plan.budget))
            changed = None if crosses else await _store(conn, report, plan)
        if crosses:
            async with database.transaction() as conn:
                changed = await _store(conn, report, plan)
                if changed is not None:
                    await on_change(conn, [changed])
        if changed is not None:
            return Changed(plan.amount, changed)


async def _plan(conn: Connection, report: Report) -> _Plan | Changed | None:
    values = {"budget_id": report.budget_id, "writer": report.writer}
    row = await (await conn.execute(sql.READ_SLICE, values)).fetchone()
    if row is None or (budget := budgets.of_row(row)).counts != report.counts:
        return None
    version, before, number, sliced = row[-4:]
    if number == report.number:
        return Changed(before, None)
    amount = new_amount(budget, report, before, sliced)
    held = max(0, budget.held + amount - before)
    return _Plan(replace(budget, spent=budget.spent + report.used, held=held), version, before, amount)


async def _store(conn: Connection, report: Report, plan: _Plan) -> Budget | None:
    """The budget as it is now. None: it has changed since it was read, and nothing was stored."""
    values = {"budget_id": report.budget_id, "writer": report.writer, "number": report.number, "beyond": report.beyond}
    values |= {"used": report.used, "change": plan.amount - plan.before, "amount": plan.amount, "version": plan.version}
    row = await (await conn.execute(sql.REPORT, values)).fetchone()
    return None if row is None else budgets.of_row(row)


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
