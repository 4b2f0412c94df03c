"""`/admin/v1/accounts` and `/admin/v1/quotas`: the accounts, and how much each may have queued and stored."""

from dataclasses import asdict, fields, replace
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app import clock
from app.admission import quotas
from app.api import body
from app.api.admin.guard import AccountPath, ChangeDep, OperatorDep
from app.api.deps import PartsDep
from app.api.envelope import success
from app.batches import accounts
from app.batches.accounts import Account
from app.tenants import service as tenants

router = APIRouter()
Limit = Annotated[int | None, Field(ge=0, le=10**18)]


class NewAccount(BaseModel):
    """An account to create."""

    model_config = ConfigDict(extra="forbid", strict=True)
    account: Annotated[str, Field(min_length=1, max_length=64)]


class QuotaChange(BaseModel):
    """Limits of an account. One that is not named stays; null removes it."""

    model_config = ConfigDict(extra="forbid", strict=True)
    open_batches: Limit = None
    open_items: Limit = None
    queued_tokens: Limit = None
    stored_bytes: Limit = None


@router.get("/accounts")
async def listing(_: OperatorDep, parts: PartsDep) -> Response:
    """Every account, with the counts of what it has."""
    async with parts.database.relaxed() as conn:
        found = await accounts.listing(conn)
    return success([_view(each) for each in found])


@router.post("/accounts")
async def create(request: Request, change: ChangeDep) -> Response:
    """Create an account."""
    name = (await body.read_model(request, NewAccount)).account
    async with change.transaction() as conn:
        await tenants.create_tenant(conn, name)
        found = await accounts.show(conn, name)
    return success(_view(found))


@router.get("/accounts/{account}")
async def show(account: AccountPath, _: OperatorDep, parts: PartsDep) -> Response:
    """One account."""
    async with parts.database.relaxed() as conn:
        found = await accounts.show(conn, account)
    return success(_view(found))


@router.delete("/accounts/{account}")
async def delete(account: AccountPath, change: ChangeDep) -> Response:
    """Begin to delete an account and all it has: keys, webhooks, files, batches. Its running batches are cancelled."""
    async with change.transaction() as conn:
        await accounts.close(conn, account)
        found = await accounts.show(conn, account)
    return success(_view(found))


@router.get("/quotas/{account}")
async def quota(account: AccountPath, _: OperatorDep, parts: PartsDep) -> Response:
    """The quotas of an account, and what is used of them. A limit that is null is none."""
    async with parts.database.relaxed() as conn:
        tenant_id = await tenants.find_tenant(conn, account)
        limits, used = await quotas.limits(conn, tenant_id), await quotas.usage(conn, tenant_id)
    return success({"account": account, "limits": asdict(limits), "used": asdict(used)})


@router.put("/quotas/{account}")
async def set_quota(account: AccountPath, request: Request, change: ChangeDep) -> Response:
    """Change quotas of an account. What is stored already stays."""
    given = (await body.read_model(request, QuotaChange)).model_dump(exclude_unset=True)
    async with change.transaction() as conn:
        tenant_id = await tenants.find_tenant(conn, account)
        limits = replace(await quotas.limits(conn, tenant_id), **given)
        await quotas.change(conn, account, limits)
        used = await quotas.usage(conn, tenant_id)
    return success({"account": account, "limits": asdict(limits), "used": asdict(used)})


def _view(account: Account) -> dict[str, Any]:
    """An account without our internal number."""
    values = {field.name: getattr(account, field.name) for field in fields(account) if field.name != "tenant_id"}
    return {name: clock.iso(value) if isinstance(value, datetime) else value for name, value in values.items()}
