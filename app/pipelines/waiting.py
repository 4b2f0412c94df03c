"""What a stage of a pipeline waits for, before what its items wait for in the queue. Pure.

budget, failing, items,  the pipeline pauses by itself
groups, quota
paused                   its owner paused it
dependency               stages that must be final first, or results of its parent, or the end of the input's batch; also
                         results that could not be handed on
outside                  answers from outside
"""

from collections.abc import Sequence
from enum import StrEnum

from app.batches.why_chain import Link, Why
from app.flows.stages import MOST_GROUPS
from app.pipelines.reads import PipelineRow, StageSight
from app.quantities import many
from app.states import BatchState


class Pause(StrEnum):
    """Why a pipeline pauses by itself."""

    BUDGET = "budget"
    FAILING = "failing"
    ITEMS = "items"
    GROUPS = "groups"
    QUOTA = "quota"


_PAUSES = {
    Pause.BUDGET: "the pipeline has used its budget; resume it with a larger one, or cancel it",
    Pause.FAILING: "too many items of a stage fail; look at why, then resume it to go on all the same",
    Pause.ITEMS: "the pipeline has made ten times as many items as its input has; resume it to go on all the same",
    Pause.GROUPS: f"a pack.by has more than {MOST_GROUPS:,} values; resume the pipeline to make all these packs, or cancel it",
    Pause.QUOTA: "its next items are more than the account's quota lets it have queued and stored; resume it once there is room",
}
_PAUSED = "the pipeline is paused; resume it to go on"
_STUCK = "results before it could not be handed on, five times; once the operator has mended it, pause and resume the pipeline"
PAUSED, DEPENDENCY, OUTSIDE = "paused", "dependency", "outside"


def of_pipeline(pipeline: PipelineRow) -> Link | None:
    """Why nothing of it begins; None: something may."""
    if pipeline.state != BatchState.PAUSED:
        return None
    if pipeline.paused_for is None:
        return Link(PAUSED, _PAUSED, blocks=True)
    return Link(pipeline.paused_for, _PAUSES.get(Pause(pipeline.paused_for), _PAUSED), blocks=True)


def of_stage(pipeline: PipelineRow, stages: Sequence[StageSight], stage: StageSight) -> Link | None:
    """What a stage waits for besides the queue; None: nothing, or it is final."""
    if stage.status.finalized_at is not None:
        return None
    if (paused := of_pipeline(pipeline)) is not None:
        return paused
    if stage.row.waits_for:
        names = ", ".join(stages[n].row.name for n in stage.row.waits_for)
        return Link(DEPENDENCY, f"it starts when {names} has ended", blocks=True)
    if stage.row.stuck:
        return Link(DEPENDENCY, _STUCK, blocks=True)
    return None if stage.outlook is not None and stage.outlook.chunks else _without_chunks(stages, stage)


def _without_chunks(stages: Sequence[StageSight], stage: StageSight) -> Link | None:
    if count := stage.row.parked:
        wait = f"{many(count, 'item')} {'waits' if count == 1 else 'wait'} for an answer from outside"
        return Link(OUTSIDE, wait, blocks=True)
    if not stage.status.fed:
        return None
    parent = next((each.row.name for each in stages if each.row.batch_id == stage.row.parent_id), None)
    message = f"waits for results of {parent}" if parent else "waits for the end of the batch that is its input"
    return Link(DEPENDENCY, message, blocks=True)


def chain(link: Link | None, why: Why) -> tuple[Link, ...]:
    """The chain of a stage. `link`: what it waits for besides the queue."""
    if link is None:
        return why.chain
    return (link, *(each for each in why.chain if each.code not in ("settling", DEPENDENCY, PAUSED)))
