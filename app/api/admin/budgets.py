"""`/admin/v1/budgets/{account}`: the budgets of an account, as the account's own routes have them."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict

from app.api import body, response_headers
from app.api.admin.guard import AccountPath, ChangeDep, OperatorDep
from app.api.deps import PartsDep
from app.api.envelope import success
from app.api.unknown_fields import WARNING
from app.budgets import service as budgets
from app.budgets import terms as budget_terms
from app.budgets.rules import Owner
from app.tenants import service as tenants

router = APIRouter(prefix="/budgets")
Name = Annotated[str, Path(pattern=budget_terms.NAME)]


class Terms(BaseModel):
    """The terms of a budget. `app.budgets.terms` checks them."""

    model_config = ConfigDict(extra="allow")


@router.get("/{account}")
async def listing(account: AccountPath, _: OperatorDep, parts: PartsDep) -> Response:
    """The budgets of an account, with what is spent, reserved and available in their present windows."""
    async with parts.database.relaxed() as conn:
        found = await budgets.listing(conn, await tenants.find_tenant(conn, account))
    return success([budget_terms.view(budget) for budget in found])


@router.put("/{account}/{name}")
async def put(account: AccountPath, name: Name, request: Request, parts: PartsDep, change: ChangeDep) -> Response:
    """Add a budget, or replace the terms of the one of this name. It is the operator's from then on; what it has spent stays."""
    given = (await body.read_model(request, Terms)).model_dump()
    async with change.transaction() as conn:
        tenant_id = await tenants.find_tenant(conn, account)
        await budgets.put(conn, tenant_id, name, given, by=Owner.OPERATOR)
    async with parts.database.relaxed() as conn:
        budget = await budgets.named(conn, tenant_id, name)
    if warning := budget_terms.warning(budget, parts.catalogue.currencies):
        response_headers.add(request, {WARNING: warning})
    return success(budget_terms.view(budget))


@router.delete("/{account}/{name}")
async def delete(account: AccountPath, name: Name, change: ChangeDep) -> Response:
    """Remove a budget. Work that waited for its money goes on."""
    async with change.transaction() as conn:
        await budgets.remove(conn, await tenants.find_tenant(conn, account), name, by=Owner.OPERATOR)
    return success({"account": account, "name": name})
