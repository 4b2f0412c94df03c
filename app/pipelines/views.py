"""Pipelines as callers read them. Pure."""

from datetime import datetime, timedelta
from typing import Any

from app import clock
from app.batches.why_chain import Link
from app.flows.stages import INPUT
from app.pipelines.drafting import NANO
from app.pipelines.outlook import PipelineOutlook, StageOutlook
from app.pipelines.reads import PipelineRow, Spent, StageRow, StageSight, Sums
from app.queue.reads import BatchStatus
from app.states import BatchState

STATUSES = {
    BatchState.OPEN: "in_progress",
    BatchState.PAUSED: "paused",
    BatchState.CANCELLING: "cancelling",
    BatchState.EXPIRING: "expiring",
    BatchState.COMPLETED: "completed",
    BatchState.FAILED: "failed",
    BatchState.CANCELLED: "cancelled",
    BatchState.EXPIRED: "expired",
}


def batch_id(request_id: Any) -> str:
    """The public id of a batch on OpenAI's routes."""
    return f"batch_{request_id.hex}"


def listed(row: PipelineRow, sums: Sums, spent: Spent | None) -> dict[str, Any]:
    """A pipeline of a list."""
    return {
        "id": row.public_id,
        "object": "pipeline",
        "name": row.name,
        "status": STATUSES[row.state],
        "paused_for": row.paused_for,
        "run": row.run,
        "inputs": row.inputs,
        "request_counts": {"total": sums.total, "completed": sums.ok, "failed": sums.failed},
        "created_at": _unix(row.created_at),
        "expires_at": _unix(row.expires_at),
        "ended_at": _unix(row.finalized_at),
        "cost": _cost(row, spent),
    }


def shown(outlook: PipelineOutlook, *, with_definition: bool = True) -> dict[str, Any]:
    """A pipeline with its stages and its definition. Who may see no prompts gets no definition, nor is there one of a pipeline
    whose contents were deleted.
    """
    sight = outlook.sight
    ran = [each for each in sight.stages if each.row.n != INPUT or each.status.endpoint]
    sums = Sums(*(sum(getattr(each.status, name) for each in ran) for name in ("total", "ok", "failed")))
    eta = None if outlook.seconds is None else int((clock.now() + timedelta(seconds=outlook.seconds)).timestamp())
    return listed(sight.row, sums, sight.spent) | {
        "eta": eta,
        "waiting": _link(outlook.waiting),
        "stages": [_stage(each, outlook) for each in outlook.stages],
        "definition": dict(sight.given) if with_definition and sight.given is not None else None,
        "deleted_at": next((clock.iso(each.status.shredded_at) for each in ran if each.status.shredded_at), None),
    }


def _stage(of: StageOutlook, outlook: PipelineOutlook) -> dict[str, Any]:
    row, status = of.sight.row, of.sight.status
    return {
        "n": row.n,
        "id": row.name,
        "after": _parent(of.sight, outlook),
        "batch": batch_id(row.request_id),
        "model": status.model if status.endpoint else None,
        "status": STATUSES[status.state],
        "request_counts": {"total": status.total, "completed": status.ok, "failed": status.failed},
        "items": {
            "ran": row.ran,
            "passed": row.passed,
            "dropped": row.dropped,
            "refused": row.refused,
            "parked": row.parked,
        },
        "more_expected": status.fed,
        "usage": _usage(row, status),
        "waiting": _link(of.waiting),
    }


def _parent(stage: StageSight, outlook: PipelineOutlook) -> str | None:
    return next((each.row.name for each in outlook.sight.stages if each.row.batch_id == stage.row.parent_id), None)


def _usage(row: StageRow, status: BatchStatus) -> dict[str, Any]:
    tokens = {
        "prompt_tokens": status.prompt_tokens,
        "completion_tokens": status.completion_tokens,
        "total_tokens": status.prompt_tokens + status.completion_tokens,
        "prompt_tokens_details": status.parts("input", cached_tokens=status.cached_tokens),
    }
    if outputs := status.parts("output"):
        tokens["completion_tokens_details"] = outputs
    if row.currency is None:
        return tokens
    return tokens | {"cost": round(row.cost, 12), "currency": row.currency}


def _cost(row: PipelineRow, spent: Spent | None) -> dict[str, Any] | None:
    """What it has cost, and its budget. None: it has neither."""
    if spent is None and row.budget is None:
        return None
    return {
        "spent": round(spent.amount, 12) if spent else 0.0,
        "currency": spent.currency if spent else None,
        "budget": None if row.budget is None else row.budget / NANO,
    }


def _link(link: Link | None) -> dict[str, Any] | None:
    if link is None:
        return None
    return {"code": link.code, "message": link.message, "since": clock.iso(link.since)}


def _unix(moment: datetime | None) -> int | None:
    return int(moment.timestamp()) if moment else None
