"""`…/ai/batches/{request_id}/why`: the reasons for which a batch waits, and the latest decisions of its model's engines."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from app import clock
from app.api.deps import Caller, PartsDep
from app.api.envelope import success
from app.api.workers_ai import batch_views, results
from app.api.workers_ai.batches import BatchId
from app.batches import recent_decisions, why_chain, why_text
from app.headroom.decision_log import LoggedChange
from app.pipelines import outlook

router = APIRouter(prefix="/ai/batches/{request_id}/why")

MOST_DECISIONS = 1000


@router.get("")
async def explain(
    request_id: BatchId,
    tenant: Caller,
    parts: PartsDep,
    last: Annotated[
        int, Query(ge=0, le=MOST_DECISIONS, description="how many of the engines' latest decisions to show")
    ] = 8,
) -> Response:
    """The chain of conditions between a batch and its end; `waiting` is the first one that blocks it.

    `decisions` are the latest changes of its engines' allowances, newest first. A final batch has neither.
    """
    why = await parts.polls.why(tenant.tenant_id, request_id)
    if why is None:
        overview = results.refusal(await batch_views.refused(request_id, tenant, parts))
        return success(_facts(overview) | {"waiting": None, "chain": [], "decisions": []})
    why = await outlook.explained(parts.database, tenant, why)
    overview = results.overview(why, parts.catalogue)
    chain = (*why.chain, *await why_chain.without_limit(parts.database, why.status, parts.catalogue))
    latest = await recent_decisions.latest(parts.database, why.gates, last)
    answer = {
        "waiting": overview.get("waiting"),
        "chain": [results.link(link) | {"blocks": link.blocks, "met": link.met} for link in chain],
        "decisions": [decision_view(each.engine, each.entry) for each in latest],
    }
    return success(_facts(overview) | answer)


def _facts(overview: dict[str, Any]) -> dict[str, Any]:
    return {name: overview[name] for name in ("request_id", "model", "status", "progress")}


def decision_view(engine: str, entry: LoggedChange) -> dict[str, Any]:
    """A decision about batch work in the form that callers read; `because`: why, in words."""
    change = entry.change
    because = why_text.decided(change.reason, change.signal, change.value, change.threshold, change.detail)
    facts = {name: getattr(change, name) for name in change.__slots__}
    return {"at": clock.iso(entry.at), "engine": engine, **facts, "because": because}
