"""`…/ai/batches/{request_id}/why`: what a batch waits for, link by link, and what the engines of its model decided lately."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from app import clock
from app.api.deps import Caller, PartsDep
from app.api.envelope import success
from app.api.workers_ai import batch_views, results
from app.api.workers_ai.batches import BatchId
from app.batches import recent_decisions
from app.batches.recent_decisions import RecentDecision
from app.headroom import reason_messages

router = APIRouter(prefix="/ai/batches/{request_id}/why")

MOST_DECISIONS = 1000


@router.get("")
async def explain(
    request_id: BatchId,
    tenant: Caller,
    parts: PartsDep,
    last: Annotated[int, Query(ge=0, le=MOST_DECISIONS, description="so many of the engines' latest decisions")] = 8,
) -> Response:
    """Everything that stands between a batch and its end, in order; `waiting` is the first link that holds it up.

    `decisions` are the latest changes of what its engines give to batch work, newest first. A batch that has ended has neither.
    """
    found = await parts.polls.why(tenant.tenant_id, request_id)
    if found is None:
        overview = results.refusal(await batch_views.refused(request_id, tenant, parts))
        return success(_facts(overview) | {"waiting": None, "chain": [], "decisions": []})
    overview = results.overview(found, parts.catalogue)
    latest = await recent_decisions.latest(parts.database, found.gates, last)
    answer = {
        "waiting": overview.get("waiting"),
        "chain": [results.link(link) | {"blocks": link.blocks} for link in found.chain],
        "decisions": [_decision(each) for each in latest],
    }
    return success(_facts(overview) | answer)


def _facts(overview: dict[str, Any]) -> dict[str, Any]:
    return {name: overview[name] for name in ("request_id", "model", "status", "progress")}


def _decision(decision: RecentDecision) -> dict[str, Any]:
    """A decision as callers see it; `because` is the comparison that decided, in words."""
    change = decision.entry.change
    because = reason_messages.because(change.signal, change.value, change.threshold, change.detail)
    facts = {name: getattr(change, name) for name in change.__slots__}
    return {"at": clock.iso(decision.entry.at), "engine": decision.engine, **facts, "because": because}
