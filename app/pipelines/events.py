"""Writes `pipeline.*` and `stage.ended`, each in the transaction that causes it."""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from app.db.pool import Connection
from app.events import Counts, EventKind, PipelineData
from app.pipelines import ids
from app.pipelines.creation import NewPipeline
from app.states import BatchState
from app.tenants.service import Tenant
from app.webhooks import emitter
from app.webhooks.emitter import NewEvent

_OF_NO_MODEL = ""
_ENDS = {
    BatchState.COMPLETED: EventKind.PIPELINE_SUCCEEDED,
    BatchState.FAILED: EventKind.PIPELINE_FAILED,
    BatchState.CANCELLED: EventKind.PIPELINE_CANCELLED,
    BatchState.EXPIRED: EventKind.PIPELINE_EXPIRED,
}


@dataclass(frozen=True, slots=True)
class Told:
    """The pipeline of an event. `traceparent`: of its submit."""

    pipeline_id: int
    request_id: UUID
    tenant_id: int
    account_id: str
    run: int
    name: str | None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class EndedStage:
    """A stage whose batch is final. `n`: its number."""

    n: int
    name: str
    request_id: UUID
    counts: Counts


async def queued(conn: Connection, tenant: Tenant, new: NewPipeline) -> None:
    """A pipeline was created."""
    ids_of = new.pipeline_id, new.request_id, new.tenant_id
    await emitter.emit_all(
        conn, [_event(EventKind.PIPELINE_QUEUED, Told(*ids_of, tenant.account_id, 1, new.flow.name, new.traceparent))]
    )


async def queued_again(conn: Connection, of: Told) -> None:
    """A retry has begun the run of `of`."""
    await emitter.emit_all(conn, [_event(EventKind.PIPELINE_QUEUED, of)])


async def paused(conn: Connection, of: Told, why: str | None, second: int) -> None:
    """It pauses. `why`: the code; None: its owner paused it. `second`: since its creation, so that each pause is told."""
    await emitter.emit_all(conn, [_event(EventKind.PIPELINE_PAUSED, of, n=second, paused_for=why)])


async def ended(conn: Connection, told: Iterable[tuple[Told, BatchState]]) -> None:
    """They are final."""
    await emitter.emit_all(conn, [_event(_ENDS[state], of) for of, state in told])


async def stages_ended(conn: Connection, told: Iterable[tuple[Told, EndedStage]]) -> None:
    """The batches of stages are final."""
    await emitter.emit_all(conn, [_of_stage(of, stage) for of, stage in told])


def _of_stage(of: Told, stage: EndedStage) -> NewEvent:
    batch = f"batch_{stage.request_id.hex}"
    return _event(EventKind.STAGE_ENDED, of, n=stage.n, stage=stage.name, batch=batch, counts=stage.counts)


def _event(
    kind: EventKind,
    of: Told,
    *,
    n: int = 0,
    paused_for: str | None = None,
    stage: str | None = None,
    batch: str | None = None,
    counts: Counts | None = None,
) -> NewEvent:
    data = PipelineData(
        request_id=str(of.request_id),
        account_id=of.account_id,
        traceparent=of.traceparent,
        pipeline=ids.format_id(of.request_id),
        name=of.name,
        paused_for=paused_for,
        stage=stage,
        batch=batch,
        counts=counts,
    )
    return NewEvent(of.tenant_id, kind, _OF_NO_MODEL, of.pipeline_id, of.run, data, n)
