"""`slackwater budget …`: what an account, a key or a workflow may spend in a window. Works on the database."""

from typing import Annotated

import typer

from app.batches import budgets as verbs
from app.cli import tables
from app.cli.audited import Reason, on_database_recorded
from app.cli.database import on_database
from app.cli.options import Account, Json, console, settings
from app.db.pool import Connection
from app.engines import catalogue
from app.engines.model_registry import with_adopted
from app.metering import budget_terms, budgets
from app.metering.budget_rules import Budget, Owner, Scope
from app.tenants import service as tenants

app = typer.Typer(help="Set, list and remove budgets.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="name of the budget")]
_COLUMNS = ("name", "for", "spent", "held", "max", "period", "renewed at", "owner")


@app.command("set")
def set_budget(
    name: Name,
    max_cost: Annotated[str | None, typer.Option(help="money of a window, like '100 USD'")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="tokens of a window, instead of money")] = None,
    period: Annotated[str, typer.Option(help="hour, day, week, month, or total")] = "month",
    tz: Annotated[str, typer.Option(help="time zone of the windows, like Europe/Berlin")] = "UTC",
    key: Annotated[str | None, typer.Option(help="only this key, by its id")] = None,
    workflow: Annotated[str | None, typer.Option(help="only this workflow")] = None,
    soft: Annotated[list[int] | None, typer.Option(help="per cent at which an event is written; repeatable")] = None,
    divert_at: Annotated[
        int | None, typer.Option(help="per cent from which work that is not critical takes a fallback")
    ] = None,
    fallback: Annotated[list[str] | None, typer.Option(help="a model to divert to; repeatable, the first fits")] = None,
    when_spent: Annotated[str, typer.Option(help="what new batches do once it is spent: wait, or refuse")] = "wait",
    strict: Annotated[bool, typer.Option("--strict", help="hold all that a request can cost")] = False,
    account: Account = "local",
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Add a budget, or replace the terms of the one of this name. What it has spent stays. Only operators can change it."""
    most = {"max_cost": max_cost, "max_tokens": max_tokens, "period": period, "tz": tz}
    of = {"key": key, "workflow": workflow, "soft": soft, "divert_at": divert_at, "fallback": fallback}
    terms = most | of | {"when_spent": when_spent, "strict": strict}
    given = {name: value for name, value in terms.items() if value is not None}
    file = catalogue.load(settings().models_file)

    async def put(conn: Connection) -> Budget:
        tenant_id, models = await tenants.find_tenant(conn, account), await with_adopted(conn, file)
        return await verbs.put(conn, models, tenant_id, name, given, by=Owner.OPERATOR, where="--")

    budget = on_database_recorded(settings(), put, reason)
    if as_json:
        tables.document(console, budget_terms.view(budget))
        return
    until = f"; renews {budget.window_to:%Y-%m-%d %H:%M} UTC" if budget.window_to else ""
    used = f"{budget.shown(budget.spent)} of {budget.shown(budget.max)} spent"
    tables.sentence(console, f"Budget {budget.name}: {used}{until}.", "green")


@app.command("list")
def list_budgets(account: Account = "local", as_json: Json = False) -> None:
    """List the budgets of an account, with what is spent and held."""

    async def read(conn: Connection) -> list[Budget]:
        return await budgets.listing(conn, await tenants.find_tenant(conn, account))

    found = on_database(settings(), read)
    if as_json:
        tables.document(console, [budget_terms.view(budget) for budget in found])
    elif not found:
        tables.sentence(console, f"Account {account} has no budget.")
    else:
        tables.show(console, _COLUMNS, [_cells(budget) for budget in found], whole=("name",), wide=("owner", "held"))
        tables.sentence(console, "Requests through engines' doors are in `slackwater spend`, and in no budget.", "dim")


@app.command("rm")
def remove(name: Name, account: Account = "local", reason: Reason = None, as_json: Json = False) -> None:
    """Remove a budget. Work that waited for its money goes on."""

    async def delete(conn: Connection) -> None:
        await verbs.remove(conn, await tenants.find_tenant(conn, account), name, by=Owner.OPERATOR)

    on_database_recorded(settings(), delete, reason)
    if as_json:
        tables.document(console, {"name": name})
    else:
        tables.sentence(console, f"Budget {name} is removed.", "green")


def _cells(budget: Budget) -> tuple[object, ...]:
    of = "the account" if budget.scope == Scope.ACCOUNT else f"{budget.scope} {budget.scope_value}"
    amounts = (budget.shown(amount) for amount in (budget.spent, budget.held, budget.max))
    renewed = budget.window_to and f"{budget.window_to:%Y-%m-%d %H:%M}"
    return (budget.name, of, *amounts, budget.period, renewed, budget.owner)
