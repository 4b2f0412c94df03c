"""`…/ai/budgets`: what an account, a key or a workflow may spend in a window. Cloudflare has no such route."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict

from app.api import body, response_headers
from app.api.deps import Caller, PartsDep
from app.api.envelope import success
from app.api.unknown_fields import WARNING
from app.audit.acts import Act
from app.budgets import service as budgets
from app.budgets import terms as budget_terms
from app.errors import NotOwner
from app.tenants.service import Tenant

router = APIRouter(prefix="/ai/budgets")

Name = Annotated[str, Path(json_schema_extra={"pattern": budget_terms.NAME})]


class BudgetBody(BaseModel):
    """The terms of a budget. `app.budgets.terms` checks them, for the command line too."""

    model_config = ConfigDict(extra="allow")


@router.get("")
async def listing(tenant: Caller, parts: PartsDep) -> Response:
    """The account's budgets, with what is spent, reserved and available in their present windows."""
    async with parts.database.relaxed() as conn:
        found = await budgets.listing(conn, tenant.tenant_id)
    return success([budget_terms.view(budget) for budget in found])


@router.put("/{name}")
async def put(name: Name, request: Request, tenant: Caller, parts: PartsDep) -> Response:
    """Add a budget of the account, or replace the terms of its one of this name. What it has spent stays."""
    given = await body.read_model(request, BudgetBody)
    with _noted(request, tenant, parts):
        async with parts.database.transaction() as conn:
            await budgets.put(conn, tenant.tenant_id, name, given.model_dump())
    async with parts.database.relaxed() as conn:
        budget = await budgets.named(conn, tenant.tenant_id, name)
    if warning := budget_terms.warning(budget, parts.catalogue.currencies):
        response_headers.add(request, {WARNING: warning})
    return success(budget_terms.view(budget))


@router.delete("/{name}")
async def delete(name: Name, request: Request, tenant: Caller, parts: PartsDep) -> Response:
    """Remove a budget of the account. Work that waited for its money goes on."""
    with _noted(request, tenant, parts):
        async with parts.database.transaction() as conn:
            await budgets.remove(conn, tenant.tenant_id, name)
    return success({"name": name})


@contextmanager
def _noted(request: Request, tenant: Tenant, parts: PartsDep) -> Iterator[None]:
    """Record in the audit log that a key of the account has tried to change what is the operator's."""
    try:
        yield
    except NotOwner as error:
        route = request.scope["route"].path_format
        parts.admission.audit.add(Act.ACCESS_REFUSED, route, tenant.account_id, error.message)
        raise
