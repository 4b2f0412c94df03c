"""`/operator/…`: what the operator of the installation sees, of all accounts. No body of a request or an answer is among it.

The routes take the token of SLACKWATER_OPERATOR_TOKEN, and do not exist without one: no API key opens them.
"""

import hmac
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from app.api.deps import PartsDep
from app.api.envelope import success
from app.api.parameter_limits import Texts
from app.api.workers_ai import batch_views
from app.api.workers_ai.history import IncidentQuery, moment
from app.api.workers_ai.listing_filters import BatchListQuery, cursor, filters
from app.audit import actor
from app.audit.actor import Actor
from app.batches import all_accounts, incidents
from app.errors import AuthenticationError, NotFound


async def _operator(request: Request, parts: PartsDep) -> None:
    """Raise unless the request has the operator's token."""
    token = parts.settings.operator_token.get_secret_value()
    if not token:
        raise NotFound("The operator's routes are off: set SLACKWATER_OPERATOR_TOKEN at the API")
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    by = Actor("unknown caller", "none", correlation=request.state.request_id)
    if not hmac.compare_digest(given.encode(), token.encode()):
        with actor.acting(by):
            parts.admission.audit.add("access.refused", "/operator", None, "the operator's token was wrong")
        raise AuthenticationError(
            "Authentication error: send SLACKWATER_OPERATOR_TOKEN as `Authorization: Bearer <token>`"
        )


router = APIRouter(prefix="/operator", dependencies=[Depends(_operator)])


class AccountsQuery(BatchListQuery):
    """The query of a listing, with the accounts."""

    account: Texts = Field([], description="of any of these accounts; default: of all")


@router.get("/batches")
async def batches(parts: PartsDep, query: Annotated[AccountsQuery, Query()]) -> Response:
    """The batches of all accounts, newest first, with the filters of an account's own list."""
    after = cursor(query.after) if query.after is not None else None
    wanted = filters(query, parts.catalogue)
    found, more = await all_accounts.page(parts.database, wanted, query.account, after=after, limit=query.limit)
    views: dict[str, dict[str, Any]] = {}
    for tenant in dict.fromkeys(tenant for tenant, _ in found):
        own = [position.request_id for other, position in found if other == tenant]
        views |= {
            view["request_id"]: {"account": tenant.account_id, **view}
            for view in await batch_views.many(own, tenant, parts)
        }
    shown = [views[name] for _, position in found if (name := str(position.request_id)) in views]
    info = {"count": len(shown), "per_page": query.limit, "cursor": str(found[-1][1].request_id) if more else None}
    return success(shown, result_info=info)


@router.get("/incidents")
async def timeline(parts: PartsDep, query: Annotated[IncidentQuery, Query()]) -> Response:
    """What died, closed, stopped, started and changed, of all accounts, with hosts, newest first."""
    before = incidents.position_of(query.after) if query.after is not None else None
    async with parts.database.relaxed() as conn:
        found = await incidents.timeline(
            conn,
            since=moment(query.since),
            before=before,
            only_trouble=query.trouble,
            subject=query.subject,
            limit=query.limit + 1,
        )
    page = found[: query.limit]
    next_cursor = incidents.cursor_of(page[-1].position) if len(found) > len(page) else None
    info = {"count": len(page), "per_page": query.limit, "cursor": next_cursor}
    return success([incidents.document(each) for each in page], result_info=info)
