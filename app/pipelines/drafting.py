"""A new pipeline before it is stored: the ids, the lines of the ledger and the keys of its stages."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app import cells
from app.admission.admission import Admission
from app.batches import batch_usage
from app.batches.request_labels import RequestLabels
from app.db.pool import Database
from app.flows.stages import Again, Definition, Request, Stage
from app.metering.lines import LineParts, parts_of
from app.pipelines import stored_flow
from app.pipelines.creation import NewPipeline, NewStage
from app.pipelines.models import StageModels
from app.queue import ingest
from app.queue.bodies import BatchSeal, new_seal, new_vault_seal
from app.queue.types import Kind
from app.sealing import batch_keys
from app.sealing.batch_keys import NewKey
from app.sealing.keyring import Keyring, has_keys, wanted
from app.settings import Settings
from app.tenants.service import Tenant

USUAL_SECONDS = 86_400.0  # in the order of batches, of a pipeline without a deadline
NANO = 10**9


@dataclass(frozen=True, slots=True)
class Order:
    """What a request asks to create. `given`: the definition as it is stored. `window`: seconds until it expires; None: never."""

    tenant: Tenant
    flow: Definition
    given: bytes
    models: StageModels
    labels: RequestLabels
    admission: Admission
    window: float | None


@dataclass(frozen=True, slots=True)
class Input:
    """The batch of the input, if it has lines. `request_id`: of the pipeline, too. `seal`, `key`: None: it is not sealed."""

    batch_id: int
    request_id: UUID
    seal: BatchSeal | None = None
    key: NewKey | None = None


async def drafted(
    database: Database,
    settings: Settings,
    order: Order,
    of: Input | None,
    request_hash: bytes | None,
    last: dict[str, Any] | None = None,
) -> NewPipeline:
    """The pipeline of an order. `of`: its input; None: it is copied from another batch. `last`: terms of the last stage's batch.

    Raises KeysUnavailable.
    """
    flow, labels = order.flow, order.labels
    async with database.relaxed() as conn:
        drawn = await ingest.next_batch_ids(conn, len(flow.stages) + (of is None))
    if of is None:
        made = await _key(database, settings, order, drawn[0]) or (None, None)
        of = Input(drawn.pop(0), cells.new_id(), *made)
    stages = await _stages(database, settings, order, drawn, last or {})
    return NewPipeline(
        of.batch_id,
        of.request_id,
        order.tenant.tenant_id,
        flow,
        order.given if of.seal is None else stored_flow.sealed(of.seal, order.given),
        stages,
        order.window or USUAL_SECONDS,
        expires=order.window is not None,
        budget=None if flow.usd is None else round(flow.usd * NANO),
        key=of.key,
        tags=labels.tags,
        correlation_id=labels.correlation_id,
        traceparent=labels.traceparent,
        idempotency_key=labels.idempotency_key if request_hash is not None else None,
        request_hash=request_hash if labels.idempotency_key is not None else None,
    )


async def _stages(
    database: Database, settings: Settings, order: Order, batch_ids: list[int], last: dict[str, Any]
) -> list[NewStage]:
    lines = [_line(order, stage) for stage in order.flow.stages]
    known = await batch_usage.line_ids(database, [line for line in lines if line is not None])
    found = []
    for stage, batch_id, line in zip(order.flow.stages, batch_ids, lines, strict=True):
        made = await _key(database, settings, order, batch_id)
        more = last if stage is order.flow.stages[-1] else {}
        line_id, key = known[line] if line is not None else None, made[1] if made else None
        found.append(NewStage(batch_id, cells.new_id(), line_id, key, **more))
    return found


def _line(order: Order, stage: Stage) -> LineParts | None:
    """The line of a stage's items; None: they use no model."""
    model, tenant = order.models.of(stage), order.tenant
    if model is None or not isinstance(stage.work, Request | Again):
        return None
    labels, endpoint = order.labels.spend, stage.work.endpoint
    return parts_of(tenant.tenant_id, tenant.key_id, labels, model.name, Kind.STAGE, model.price, endpoint)


async def _key(
    database: Database, settings: Settings, order: Order, batch_id: int
) -> tuple[BatchSeal | None, NewKey] | None:
    """The seal and the key of a stage whose items are sealed, or may have vaults that are. None: it needs none."""
    ring, tenant_id = Keyring.of(settings), order.tenant.tenant_id
    if wanted(settings, order.admission.encrypts):
        return await new_seal(database, ring, tenant_id, batch_id)
    if order.admission.redaction is None or not has_keys(settings):
        return None
    key = new_vault_seal(batch_id)[1]
    return None, await batch_keys.wrap_for_vaults(database, ring, tenant_id, batch_id, key)
