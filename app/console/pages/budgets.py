"""Budgets: who may change those of an account by the API makes, changes and deletes them here. The rules are those of the API."""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from app import clock
from app.access.roles import Viewer
from app.audit.acts import Act
from app.budgets import service as budgets
from app.budgets.rules import Budget, Owner
from app.console import forms
from app.console.page import whole
from app.console.pages.acting import attempted
from app.console.pages.actions import refuse
from app.console.parts import Parts, parts_of, viewer_of
from app.console.views import budget, spend, spend_budgets
from app.errors import AccountUnknown, BadInput, NotFound, SlackwaterError
from app.metering import reports
from app.metering.reports import Scope
from app.tenants import key_list
from app.tenants import service as tenants
from app.tenants.service import Tenant

_NOTHING: Mapping[str, str] = MappingProxyType({})
_SPEND = "/console/spend"
_KEPT = 400  # characters of a field that are shown again
_MOST = 2**31


async def ask(request: Request) -> Response:
    """The form for a new budget."""
    if not viewer_of(request).role.acts:
        raise refuse(viewer_of(request), "make a budget")
    return await _form(request)


async def create(request: Request) -> Response:
    """Make a budget. What cannot be made is told beside the form, with what was filled in."""
    parts, viewer = parts_of(request), viewer_of(request)
    if not viewer.role.acts:
        raise refuse(viewer, "make a budget")
    given = await _given(request)
    name = given.get("name", "")
    try:
        tenant = await _tenant(parts, viewer, given.get("account", ""))

        async def verb() -> None:
            async with parts.database.transaction() as conn:
                terms = budget.terms(given)
                await budgets.put(conn, tenant.tenant_id, name, terms, by=_owner(viewer), only_new=True)

        await attempted(parts, viewer, Act.BUDGET_SET, name[:_KEPT] or "new budget", tenant.account_id, verb)
    except SlackwaterError as error:
        return await _form(request, given, error)
    return RedirectResponse(f"{_SPEND}?did=budget-made", 303)


def _owner(viewer: Viewer) -> Owner:
    """Whose the budget is from then on: who sees all accounts is the operator."""
    return Owner.OPERATOR if viewer.tenant_id is None else Owner.ACCOUNT


async def _tenant(parts: Parts, viewer: Viewer, named: str) -> Tenant:
    """The account of the viewer, or the one that somebody who sees all accounts has named. Raises BadInput."""
    if viewer.tenant_id is not None and viewer.account is not None:
        return Tenant(viewer.tenant_id, viewer.account)
    try:
        async with parts.reader.relaxed() as conn:
            return Tenant(await tenants.find_tenant(conn, named), named)
    except AccountUnknown as error:
        raise BadInput(f"account: {error.message}", param="account") from None


async def _form(
    request: Request, given: Mapping[str, str] = _NOTHING, error: SlackwaterError | None = None
) -> Response:
    parts, viewer = parts_of(request), viewer_of(request)
    known = await _known(parts, viewer.tenant_id)
    context = budget.new(given, error, viewer.account, parts.catalogue, known)
    return await whole(request, "budget", context, active=_SPEND, status=error.status if error else 200)


async def _known(parts: Parts, tenant_id: int | None) -> budget.Known:
    if tenant_id is None:
        return budget.Known()
    now = clock.now()
    async with parts.reader.relaxed() as conn:
        keys, _ = await key_list.keys(conn, tenant_id, "live", None, None)
        used = await reports.usage(conn, ("workflow",), Scope(now - timedelta(days=spend.DAYS), now, tenant_id))
    return budget.Known([(key.key_id, key.name) for key in keys], sorted({row.group[0] for row in used} - {"", "-"}))


async def _given(request: Request) -> dict[str, str]:
    return {name: str(value).strip()[:_KEPT] for name, value in (await forms.read(request)).items()}


async def _of(request: Request, what: str) -> tuple[Parts, Viewer, Tenant, Budget]:
    """Who acts, and on which budget of which account. Raises NotFound: there is none, or it is another account's;
    AuthenticationError.
    """
    parts, viewer, given = parts_of(request), viewer_of(request), int(request.path_params["budget_id"])
    async with parts.reader.relaxed() as conn:
        found = [
            each
            for each in await budgets.of_ids(conn, [given] if given < _MOST else [])
            if viewer.tenant_id in (None, each.tenant_id)
        ]
        if not found:
            raise NotFound("There is no such budget")
        account = await tenants.account_id_of(conn, found[0].tenant_id)
    if not viewer.role.acts:
        raise refuse(viewer, what)
    return parts, viewer, Tenant(found[0].tenant_id, account), found[0]


async def show(request: Request) -> Response:
    """The form with the terms of a budget; only the terms for who may not change it."""
    _, _, tenant, row = await _of(request, "change a budget")
    return await _shown(request, tenant, row)


async def _shown(
    request: Request,
    tenant: Tenant,
    row: Budget,
    given: Mapping[str, str] = _NOTHING,
    error: SlackwaterError | None = None,
) -> Response:
    parts, by = parts_of(request), _owner(viewer_of(request))
    if row.changed_by(by):
        known = await _known(parts, tenant.tenant_id)
        context = budget.change(given, error, row, by, tenant.account_id, parts.catalogue, known, clock.now())
    else:
        context = budget.terms_only(row, error, tenant.account_id, clock.now())
    return await whole(request, "budget", context, active=_SPEND, status=error.status if error else 200)


async def change(request: Request) -> Response:
    """Replace the terms of a budget. What is refused is told beside the form, with what was filled in."""
    parts, viewer, tenant, row = await _of(request, "change a budget")
    given = await _given(request)

    async def verb() -> None:
        async with parts.database.transaction() as conn:
            await budgets.put(conn, tenant.tenant_id, row.name, budget.terms(given), by=_owner(viewer))

    try:
        await attempted(parts, viewer, Act.BUDGET_SET, row.name, tenant.account_id, verb)
    except SlackwaterError as error:
        return await _shown(request, tenant, row, given, error)
    return RedirectResponse(f"{_SPEND}?did=budget-changed", 303)


async def delete(request: Request) -> Response:
    """Delete a budget."""
    parts, viewer, tenant, row = await _of(request, "delete a budget")

    async def verb() -> None:
        async with parts.database.transaction() as conn:
            await budgets.remove(conn, tenant.tenant_id, row.name, by=_owner(viewer))

    try:
        await attempted(parts, viewer, Act.BUDGET_REMOVE, row.name, tenant.account_id, verb)
    except NotFound:
        raise
    except SlackwaterError as error:
        return await _shown(request, tenant, row, error=error)
    return RedirectResponse(f"{_SPEND}?did=budget-deleted", 303)


_ONE = f"{spend_budgets.PATH}/{{budget_id:int}}"
ROUTES = (
    Route(budget.NEW, ask),
    Route(budget.NEW, create, methods=["POST"]),
    Route(_ONE, show),
    Route(_ONE, change, methods=["POST"]),
    Route(f"{_ONE}/delete", delete, methods=["POST"]),
)
