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
from app.engines import catalogue
from app.quantities import moment
from app.tenants import service as tenants
from app.user_errors import Failure

app = typer.Typer(help="Set, list and remove budgets.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="name of the budget")]
_COLUMNS = ("name", "for", "spent", "reserved", "available", "max", "period", "renewed at", "owner")


@app.command("set")
def set_budget(
    name: Name,
    max_cost: Annotated[str | None, typer.Option(help="money of a window, like '100 USD'")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="tokens of a window, instead of money")] = None,
    period: Annotated[str | None, typer.Option(help="hour, day, week, month, or total; if new: month")] = None,
    tz: Annotated[str | None, typer.Option(help="time zone of the windows, like Europe/Berlin; if new: UTC")] = None,
    key: Annotated[str | None, typer.Option(help="only this key, by its id")] = None,
    workflow: Annotated[str | None, typer.Option(help="only this workflow")] = None,
    whole_account: Annotated[
        bool, typer.Option("--whole-account", help="not only a key or a workflow any more")
    ] = False,
    alerts_at: Annotated[
        list[str] | None, typer.Option(help="per cent at which an event is written; repeatable; or none")
    ] = None,
    queued: Annotated[
        str | None, typer.Option(help="what queued work does at the limit: alert, wait, or refuse; if new: wait")
    ] = None,
    synchronous: Annotated[
        str | None, typer.Option(help="what calls do at the limit: alert, or refuse; if new: refuse")
    ] = None,
    reserve: Annotated[
        str | None, typer.Option(help="what is kept for work before it runs: expected, or maximum; if new: expected")
    ] = None,
    divert_at: Annotated[int | None, typer.Option(hidden=True)] = None,
    fallback: Annotated[list[str] | None, typer.Option(hidden=True)] = None,
    soft: Annotated[list[int] | None, typer.Option(hidden=True)] = None,
    when_spent: Annotated[str | None, typer.Option(hidden=True)] = None,
    strict: Annotated[bool | None, typer.Option("--strict", hidden=True)] = None,
    account: Account = "local",
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Add a budget, or change the one of this name. It keeps what it has spent, and the terms that are not given. Only operators
    can change it then.
    """
    if whole_account and (key or workflow):
        raise Failure("--whole-account: the budget would be of a key or a workflow, too.", "Leave one of them out.")
    most = {"max_cost": max_cost, "max_tokens": max_tokens, "period": period, "tz": tz}
    of = {"key": key, "workflow": workflow, "alerts_at": _alerts(alerts_at)}
    limit = {name: value for name, value in (("queued", queued), ("synchronous", synchronous)) if value is not None}
    how = {"on_limit": limit or None, "reserve": reserve}
    old = {"soft": soft, "when_spent": when_spent, "strict": strict, "divert_at": divert_at, "fallback": fallback}
    terms = most | of | how | old
    given = {name: value for name, value in terms.items() if value is not None}
    without = ("key", "workflow") if whole_account else ()

    async def amend(conn: Connection) -> tuple[int, Budget | None]:
        tenant_id = await tenants.find_tenant(conn, account)
        return tenant_id, await budgets.amend(
            conn, tenant_id, name, given, without=without, by=Owner.OPERATOR, where="--"
        )

    currencies = catalogue.load(settings().models_file).currencies
    tenant_id, before = on_database_recorded(settings(), amend, reason)
    budget = on_database(settings(), lambda conn: budgets.named(conn, tenant_id, name))
    if as_json:
        tables.document(console, budget_terms.view(budget))
        return
    tables.sentence(console, _state(budget), "green")
    if warning := budget_terms.warning(budget, currencies):
        tables.sentence(console, f"Warning: {warning}.", "yellow")
    if before is not None and before.owner != budget.owner:
        tables.sentence(console, f"It was account {account}'s own; only operators can change it now.")


def _alerts(given: list[str] | None) -> list[int | str] | None:
    """The per cents; what is no number is left for the terms to refuse."""
    if given is None:
        return None
    numbers = [] if given == ["none"] else given
    return [int(each) if each.isascii() and each.isdecimal() and len(each) < 20 else each for each in numbers]


def _state(budget: Budget) -> str:
    reserved, available = budget.shown(budget.begun), budget.shown(max(0, budget.available))
    until = f"; renews {moment(budget.window_to)}" if budget.window_to else ""
    return (
        f"Budget {budget.name}: {budget.of_max(budget.spent)} spent, {reserved} reserved, {available} available{until}."
    )


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
