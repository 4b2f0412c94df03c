"""What each stage of a pipeline waits for, and when the pipeline will be done."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.batches import why_chain
from app.batches.why_chain import Link, Why
from app.db.pool import Database
from app.engines.catalogue import Catalogue
from app.flows.stages import INPUT, BySize, External, Stage
from app.pipelines import eta, reads, waiting
from app.pipelines.eta import StageLoad
from app.pipelines.reads import PipelineSight, StageSight
from app.queue import reads as queue_reads
from app.states import BatchState
from app.tenants.service import Tenant

_HALF = 0.5  # of the most items of a fan-out, while none is known


@dataclass(frozen=True, slots=True)
class StageOutlook:
    """A stage with what it waits for, and seconds until the items that it has are done; None: not known."""

    sight: StageSight
    waiting: Link | None
    why: Why
    seconds: float | None


@dataclass(frozen=True, slots=True)
class PipelineOutlook:
    """`seconds`: until the pipeline is done; None: not known, or it is final."""

    sight: PipelineSight
    stages: Sequence[StageOutlook]
    waiting: Link | None
    seconds: float | None


async def of(database: Database, catalogue: Catalogue, tenant: Tenant, sight: PipelineSight) -> PipelineOutlook:
    """The outlook of a pipeline."""
    stages = []
    for each in sight.stages:
        why = await why_chain.explained(database, each.status, each.outlook)
        link = waiting.of_stage(sight.row, sight.stages, each)
        left = why.estimate.eta_seconds if why.estimate else None
        stages.append(StageOutlook(each, link or why.waiting, why, left))
    seconds = await _seconds(database, catalogue, tenant, sight, stages)
    return PipelineOutlook(sight, stages, waiting.of_pipeline(sight.row), seconds)


async def explained(database: Database, tenant: Tenant, why: Why) -> Why:
    """Why a batch waits; of a stage, what its pipeline waits for comes first."""
    if why.status.pipeline is None or why.status.finalized_at is not None:
        return why
    row = await reads.row(database, tenant, why.status.pipeline)
    stages = await reads.stage_sights(database, tenant, row.pipeline_id)
    own = next((each for each in stages if each.row.request_id == why.status.request_id), None)
    link = None if own is None else waiting.of_stage(row, stages, own)
    return replace(why, chain=waiting.chain(link, why))


async def _seconds(
    database: Database, catalogue: Catalogue, tenant: Tenant, sight: PipelineSight, stages: Sequence[StageOutlook]
) -> float | None:
    outside = any(each.sight.row.parked for each in stages) or any(
        isinstance(sight.flow.stage(each.row.n).work, External)
        for each in sight.stages
        if each.row.n != INPUT and each.status.finalized_at is None
    )
    if sight.row.state != BatchState.OPEN or sight.row.source_id is not None or outside:
        return None
    loads = [_load(sight, each.sight, catalogue) for each in stages]
    prospects = {
        load.pool: await queue_reads.prospect(database, tenant.tenant_id, load.pool)
        for load in loads
        if load.pool is not None
    }
    busy = [each.seconds for each in stages if each.sight.outlook is not None and each.sight.outlook.chunks]
    return eta.seconds(loads, busy, lambda pool, tokens: prospects[pool].seconds(round(tokens)))


def _load(sight: PipelineSight, each: StageSight, catalogue: Catalogue) -> StageLoad:
    row, status = each.row, each.status
    stage = None if row.n == INPUT else sight.flow.stage(row.n)
    model = catalogue.resolve(status.model) if status.endpoint else None
    return StageLoad(
        row.n,
        None if stage is None else stage.parent,
        model.served if model else None,
        status.total,
        row.taken,
        status.total if stage is None else row.ran,
        final=status.finalized_at is not None or not status.fed,
        usual=1.0 if stage is None else _usual(stage),
        tokens=_tokens(each),
    )


def _usual(stage: Stage) -> float:
    """Items that one item of the parent makes, while none is known."""
    if stage.each is not None:
        return stage.each.most * _HALF
    return 1 / stage.pack.size if isinstance(stage.pack, BySize) else 1.0


def _tokens(each: StageSight) -> float | None:
    """Mean tokens of one request: of those that are done, else of the estimates of those that wait."""
    used = each.status.prompt_tokens + each.status.completion_tokens
    if used and each.status.ok:
        return used / max(1, min(each.row.ran or each.status.ok, each.status.ok))
    left = each.status.total - each.status.ok - each.status.failed
    return each.outlook.own_tokens / left if each.outlook is not None and left else None
