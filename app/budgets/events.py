"""Writes `budget.alert`, `budget.spent`, `budget.renewed` and `budget.diverted`, in the transaction that causes each."""

from collections.abc import Sequence

from app.budgets import rules, sql
from app.budgets.rules import Budget, Queued
from app.changes import service as changes
from app.changes.kinds import ChangeKind
from app.db.pool import Connection
from app.events import NO_REQUEST, BudgetData, EventKind
from app.quantities import moment
from app.tenants import service as tenants
from app.webhooks import emitter


async def reached(conn: Connection, changed: Sequence[Budget]) -> None:
    """Write the events of the thresholds that these budgets have reached, once in a window each."""
    for budget in changed:
        for percent in rules.crossed(budget):
            await _reached(conn, budget, percent)


async def spent(conn: Connection, budget: Budget) -> None:
    """Write that the rest of a budget is too small for the work that waits, unless that was written in this window."""
    if not budget.spent_noted:
        await _reached(conn, budget, rules.SPENT)


async def renewed(conn: Connection, budget: Budget) -> None:
    """Write that the money of a budget whose window was turned is renewed, if it had ended. `budget`: as it was before."""
    if budget.spent_noted:
        message = f"Budget {budget.name} is renewed: {budget.shown(budget.max)} for the next {budget.period}."
        await _emit(conn, budget, EventKind.BUDGET_RENEWED, 0, message)
        await _note(conn, budget, ChangeKind.BUDGET_RENEWED, message)


async def diverted(conn: Connection, budget: Budget, items: int, model: str) -> None:
    """Write that work was diverted, once in a window for each model."""
    row = await (await conn.execute(sql.DIVERTED, {"budget_id": budget.budget_id, "model": model})).fetchone()
    if row is not None:
        message = f"{_used(budget)} {items:,} waiting items now use {model}, and more may follow."
        await _emit(conn, budget, EventKind.BUDGET_DIVERTED, budget.percent, message)


async def _reached(conn: Connection, budget: Budget, percent: int) -> None:
    note = sql.SPENT_NOTED if percent >= rules.SPENT else sql.NOTIFIED
    await conn.execute(note, {"budget_id": budget.budget_id, "percent": percent})
    if percent < rules.SPENT:
        await _emit(conn, budget, EventKind.BUDGET_ALERT, percent, _used(budget))
        return
    until = f"until {moment(budget.window_to)}" if budget.window_to else "until its maximum is raised"
    waits = {Queued.WAIT: f"queued work waits {until}", Queued.REFUSE: f"new batches are refused {until}"}
    then = waits.get(budget.queued, "queued work goes on")
    await _emit(conn, budget, EventKind.BUDGET_SPENT, budget.percent, f"{_used(budget)} {then[0].upper()}{then[1:]}.")
    await _note(conn, budget, ChangeKind.BUDGET_SPENT, f"{budget.of_max(budget.spent)}; {then}")


def _used(budget: Budget) -> str:
    return f"Budget {budget.name} has spent {budget.of_max(budget.spent)}."


async def _emit(conn: Connection, budget: Budget, kind: EventKind, percent: int, message: str) -> None:
    account_id = await tenants.account_id_of(conn, budget.tenant_id)
    data = BudgetData(
        request_id=NO_REQUEST, account_id=account_id, budget=budget.name, percent=percent, message=message
    )
    await emitter.emit(conn, tenant_id=budget.tenant_id, kind=kind, model="", batch_id=None, run=None, data=data)


async def _note(conn: Connection, budget: Budget, kind: ChangeKind, message: str) -> None:
    """Write it to the timeline of the installation, too."""
    facts = {"budget": budget.name, "percent": budget.percent, "message": message}
    await changes.record(conn, kind, budget.name, facts, tenant_id=budget.tenant_id)
