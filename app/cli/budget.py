"""`slackwater budget …`: what an account, a key or a workflow may spend in a window. Works on the database."""

from typing import Annotated

import typer

from app.budgets import service as budgets
from app.budgets import terms as budget_terms
from app.budgets.rules import Budget, Owner, Scope
from app.cli import tables
from app.cli.audited import Reason, on_database_recorded
from app.cli.database import on_database
from app.cli.options import Account, Json, console, settings
from app.db.pool import Connection
from app.quantities import moment
from app.tenants import service as tenants

app = typer.Typer(help="Set, list and remove budgets.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="name of the budget")]
_COLUMNS = ("name", "for", "spent", "reserved", "available", "max", "period", "renewed at", "owner")


@app.command("set")
def set_budget(
    name: Name,
    max_cost: Annotated[str | None, typer.Option(help="money of a window, like '100 USD'")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="tokens of a window, instead of money")] = None,
    period: Annotated[str, typer.Option(help="hour, day, week, month, or total")] = "month",
    tz: Annotated[str, typer.Option(help="time zone of the windows, like Europe/Berlin")] = "UTC",
    key: Annotated[str | None, typer.Option(help="only this key, by its id")] = None,
    workflow: Annotated[str | None, typer.Option(help="only this workflow")] = None,
    alerts_at: Annotated[
        list[int] | None, typer.Option(help="per cent at which an event is written; repeatable")
    ] = None,
    queued: Annotated[str, typer.Option(help="what queued work does at the limit: alert, wait, or refuse")] = "wait",
    synchronous: Annotated[str, typer.Option(help="what calls do at the limit: alert, or refuse")] = "refuse",
    reserve: Annotated[
        str, typer.Option(help="what is kept for work before it runs: expected, or maximum")
    ] = "expected",
    divert_at: Annotated[int | None, typer.Option(hidden=True)] = None,
    fallback: Annotated[list[str] | None, typer.Option(hidden=True)] = None,
    soft: Annotated[list[int] | None, typer.Option(hidden=True)] = None,
    when_spent: Annotated[str | None, typer.Option(hidden=True)] = None,
    strict: Annotated[bool | None, typer.Option("--strict", hidden=True)] = None,
    account: Account = "local",
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Add a budget, or replace the terms of the one of this name. What it has spent stays. Only operators can change it."""
    most = {"max_cost": max_cost, "max_tokens": max_tokens, "period": period, "tz": tz}
    of = {"key": key, "workflow": workflow, "alerts_at": alerts_at}
    how = {"on_limit": {"queued": queued, "synchronous": synchronous}, "reserve": reserve}
    old = {"soft": soft, "when_spent": when_spent, "strict": strict, "divert_at": divert_at, "fallback": fallback}
    terms = most | of | how | old
    given = {name: value for name, value in terms.items() if value is not None}

    async def put(conn: Connection) -> Budget:
        return await budgets.put(
            conn, await tenants.find_tenant(conn, account), name, given, by=Owner.OPERATOR, where="--"
        )

    budget = on_database_recorded(settings(), put, reason)
    if as_json:
        tables.document(console, budget_terms.view(budget))
        return
    until = f"; renews {moment(budget.window_to)}" if budget.window_to else ""
    used = f"{budget.of_max(budget.spent)} spent"
    tables.sentence(console, f"Budget {budget.name}: {used}{until}.", "green")


@app.command("list")
def list_budgets(account: Account = "local", as_json: Json = False) -> None:
    """List the budgets of an account, with what is spent, reserved and available."""

    async def read(conn: Connection) -> list[Budget]:
        return await budgets.listing(conn, await tenants.find_tenant(conn, account))

    found = on_database(settings(), read)
    if as_json:
        tables.document(console, [budget_terms.view(budget) for budget in found])
    elif not found:
        tables.sentence(console, f"Account {account} has no budget.")
    else:
        cells = [_cells(budget) for budget in found]
        tables.show(console, _COLUMNS, cells, whole=("name",), wide=("owner", "reserved"))
        tables.sentence(console, "Requests through engines' doors are in `slackwater spend`, and in no budget.", "dim")


@app.command("rm")
def remove(name: Name, account: Account = "local", reason: Reason = None, as_json: Json = False) -> None:
    """Remove a budget. Work that waited for its money goes on."""

    async def delete(conn: Connection) -> None:
        await budgets.remove(conn, await tenants.find_tenant(conn, account), name, by=Owner.OPERATOR)

    on_database_recorded(settings(), delete, reason)
    if as_json:
        tables.document(console, {"name": name})
    else:
        tables.sentence(console, f"Budget {name} is removed.", "green")


def _cells(budget: Budget) -> tuple[object, ...]:
    of = "the account" if budget.scope == Scope.ACCOUNT else f"{budget.scope} {budget.scope_value}"
    amounts = (budget.shown(amount) for amount in (budget.spent, budget.begun, max(0, budget.available), budget.max))
    return (budget.name, of, *amounts, budget.period, budget.window_to and moment(budget.window_to), budget.owner)
