"""`/operator/…`: what the operator of the installation sees, of all accounts. No body of a request or an answer is among it.

The routes take a token of an operator (`slackwater operator create`), or SLACKWATER_OPERATOR_TOKEN. No API key opens them.
"""

import hmac
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from app import places
from app.api import operator_batches, operator_flows, submit_params
from app.api.admin import guard
from app.api.deps import PartsDep
from app.api.envelope import success
from app.api.parameter_limits import Texts
from app.api.workers_ai import batch_views
from app.api.workers_ai.history import (
    DecisionQuery,
    HistoryQuery,
    IncidentQuery,
    ProtectionQuery,
    decisions_page,
    history_page,
    incidents_page,
    protection_of,
)
from app.api.workers_ai.listing_filters import BatchListQuery, filters
from app.api.workers_ai.standing import FindQuery, finding_view, queue_view, standing_view
from app.api.workers_ai.usage import (
    ExportQuery,
    OperatorExplainQuery,
    OperatorSessionsQuery,
    OperatorUsageQuery,
    explained_of,
    exported,
    sessions_of,
    usage_of,
)
from app.audit import actor
from app.audit.actor import Actor
from app.batches import all_accounts, fair_shares, lookups, queue_outlook


async def _operator(request: Request, parts: PartsDep) -> None:
    """Raise AuthenticationError unless an operator sends the request."""
    token = parts.settings.operator_token.get_secret_value()
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    if token and hmac.compare_digest(given.encode(), token.encode()):
        actor.enter(Actor("SLACKWATER_OPERATOR_TOKEN", "operator", correlation=request.state.request_id))
        return
    await guard.operator(request, parts)


router = APIRouter(prefix="/operator", dependencies=[Depends(_operator)])


class AccountsQuery(BatchListQuery):
    """The query of a listing, with the accounts."""

    account: Texts = Field([], description="of any of these accounts; default: of all")


@router.get("/batches")
async def batches(parts: PartsDep, query: Annotated[AccountsQuery, Query()]) -> Response:
    """The batches of all accounts, newest first, with the filters of an account's own list."""
    after = places.parsed(query.after, submit_params.batch_id)
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


router.include_router(operator_batches.router)
router.include_router(operator_flows.router)


@router.get("/usage")
async def usage(parts: PartsDep, query: Annotated[OperatorUsageQuery, Query()]) -> Response:
    """What the requests of all accounts used and cost, by account, labels, model, key or time."""
    return await usage_of(parts, query, None)


@router.get("/usage/export")
async def export(parts: PartsDep, query: Annotated[ExportQuery, Query()]) -> Response:
    """What all accounts used on each day, as CSV: FOCUS 1.2, or a row for each line of the ledger."""
    return await exported(parts, query, None)


@router.get("/usage/explain")
async def explain(parts: PartsDep, query: Annotated[OperatorExplainQuery, Query()]) -> Response:
    """Why the cost of all accounts changed from one period to another."""
    return await explained_of(parts, query, None)


@router.get("/sessions")
async def sessions(parts: PartsDep, query: Annotated[OperatorSessionsQuery, Query()]) -> Response:
    """How the prompts of the sessions of all accounts grow."""
    return await sessions_of(parts, query, None)


@router.get("/incidents")
async def timeline(parts: PartsDep, query: Annotated[IncidentQuery, Query()]) -> Response:
    """What died, closed, stopped, started and changed, of all accounts, with hosts, newest first."""
    return await incidents_page(parts, query, None)


@router.get("/engines/{name}/history")
async def history(name: str, parts: PartsDep, query: Annotated[HistoryQuery, Query()]) -> Response:
    """What an engine did, as an account reads it."""
    return await history_page(parts, name, query)


@router.get("/engines/{name}/decisions")
async def decisions(name: str, parts: PartsDep, query: Annotated[DecisionQuery, Query()]) -> Response:
    """Each change of what an engine leaves to batch work, and why, as an account reads it."""
    return await decisions_page(parts, name, query)


@router.get("/protection")
async def protected(parts: PartsDep, query: Annotated[ProtectionQuery, Query()]) -> Response:
    """How long synchronous callers wait for the first token and between tokens, in milliseconds, as an account reads it."""
    return await protection_of(parts, query)


@router.get("/queue")
async def queue(parts: PartsDep) -> Response:
    """What waits and runs of all batches, by model: tokens, how urgent they are, and when they will be done."""
    async with parts.database.relaxed() as conn:
        found = await queue_outlook.read(conn, parts.catalogue, None)
    return success(queue_view(found))


@router.get("/fairness")
async def fairness(parts: PartsDep) -> Response:
    """What each account with queued work is due of the engines of a model, what it got, and who is next, in the fair order."""
    async with parts.database.relaxed() as conn:
        found = await fair_shares.standing(conn)
    return success(standing_view(found, None))


@router.get("/find")
async def find(parts: PartsDep, query: Annotated[FindQuery, Query()]) -> Response:
    """What an id, a name or a tag belongs to, in all accounts."""
    async with parts.database.relaxed() as conn:
        found = await lookups.find(conn, None, query.q)
    return success(finding_view(found))
