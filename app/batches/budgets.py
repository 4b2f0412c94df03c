"""A caller's verbs on the budgets of an account. Queued work follows within a round of the steward (`funding.LaneMoves`)."""

from collections.abc import Mapping
from typing import Any

from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record, changed
from app.batches import budget_events, funding
from app.db.pool import Connection
from app.engines.catalogue import Catalogue
from app.errors import BadInput, Conflict, NotOwner
from app.metering import budget_terms, budgets
from app.metering.budget_rules import Budget, Owner, Scope
from app.queue import settling
from app.tenants import service as tenants

Given = Mapping[str, Any]


async def put(
    conn: Connection,
    models: Catalogue,
    tenant_id: int,
    name: str,
    given: Given,
    *,
    by: Owner = Owner.ACCOUNT,
    where: str = "",
) -> Budget:
    """Add the budget of this name, or change it: it is then the one's who did. Call inside a transaction.

    Raises BadInput, Conflict, NotOwner.
    """
    terms = budget_terms.parse(name, given, where=where)
    for model in terms.fallback:
        if models.resolve(model) is None:
            known = ", ".join(sorted(models.models))
            raise BadInput(f"{where}fallback: no such model {model!r}; there are {known}", param="fallback")
    if terms.scope == Scope.KEY and not await tenants.has_key(conn, tenant_id, terms.scope_value):
        raise BadInput(
            f"{where}key: the account has no key {terms.scope_value[:64]!r}; give the id that `slackwater key list` shows",
            param="key",
        )
    await settling.exclusively(conn)  # so that no result is counted between the ledger and the new budget
    before = await budgets.of_name(conn, tenant_id, name)
    _check_owner(before, by)
    try:
        budget = await budgets.put(conn, tenant_id, terms, by)
    except ValueError as error:
        raise Conflict(f"{where}{name}: {error}") from None
    if before is not None and before.counts != budget.counts:
        await funding.hold_anew(conn, budget)
        budget = await budgets.of_name(conn, tenant_id, name) or budget
    await budget_events.reached(conn, [budget])
    old, new = changed(_terms(before), _terms(budget))
    if new:
        account = await tenants.account_id_of(conn, tenant_id)
        record = Record(Act.BUDGET_SET, name, account, before=None if before is None else old, after=new)
        await log.record(conn, record)
    return budget


def _terms(budget: Budget | None) -> dict[str, Any]:
    """What was set of a budget, without what it counts."""
    if budget is None:
        return {}
    return {name: value for name, value in budget_terms.view(budget).items() if name not in _COUNTED}


_COUNTED = ("name", "spent", "held", "remaining", "window_from", "window_to", "not_counted")


def _check_owner(budget: Budget | None, by: Owner) -> None:
    """An operator may change what an account has set, and not the other way round."""
    if budget is not None and budget.owner == Owner.OPERATOR and by == Owner.ACCOUNT:
        raise NotOwner(
            f"Budget {budget.name!r} belongs to the operator of this installation; a key of the account cannot change or "
            "remove it"
        )


async def remove(conn: Connection, tenant_id: int, name: str, *, by: Owner = Owner.ACCOUNT) -> None:
    """Remove a budget. Work that waited for its money goes on. Raises NotFound, NotOwner."""
    before = await budgets.of_name(conn, tenant_id, name)
    _check_owner(before, by)
    await budgets.remove(conn, tenant_id, name)
    account = await tenants.account_id_of(conn, tenant_id)
    await log.record(conn, Record(Act.BUDGET_REMOVE, name, account, before=_terms(before)))
