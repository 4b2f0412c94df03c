"""Stores a new pipeline: its row, its stages, their batches, and its input, in one transaction of the caller.

The input, stage 0, is a batch that never runs; or a new batch that runs, whose results are handed on (`then`); or a batch without
items yet, which gets copies of another batch's items and results once that is final.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from app.budgets import service as budgets
from app.db.pool import Connection
from app.flows import counting
from app.flows.stages import INPUT, INPUT_NAME, ByValue, Definition, External, Request
from app.pipelines import sql as queries
from app.queue import handoff, stages
from app.queue.stages import StageBatch
from app.queue.types import Kind
from app.sealing import batch_keys
from app.sealing.batch_keys import NewKey
from app.states import BatchState


@dataclass(frozen=True, slots=True)
class NewStage:
    """The batch of a stage, the first one's first. `line_id`: the line of the ledger for its requests; None: not known yet.
    `key`: its data key, if it is sealed. `kind`: a stage that callers see as a batch is of the kind `batch`.
    """

    batch_id: int
    request_id: UUID
    line_id: int | None = None
    key: NewKey | None = None
    kind: Kind = Kind.STAGE
    metadata: Mapping[str, str] | None = None
    policy: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class NewPipeline:
    """A pipeline that is to be stored. `pipeline_id`: the batch_id of its input. `stages`: one for each of `flow`. All batch ids
    are drawn at one moment, so they are of one day. `definition`: as `stored_flow` makes it, sealed with the input's key if
    that has one. `budget`: in 10^-9 of the currency. `key`: of the input.
    """

    pipeline_id: int
    request_id: UUID
    tenant_id: int
    flow: Definition
    definition: bytes
    stages: Sequence[NewStage]
    deadline_seconds: float
    expires: bool = False
    budget: int | None = None
    key: NewKey | None = None
    tags: tuple[str, ...] = ()
    correlation_id: str | None = None
    traceparent: str | None = None
    idempotency_key: str | None = None
    request_hash: bytes | None = None


@dataclass(frozen=True, slots=True)
class Lines:
    """An input of lines: blocks of binary COPY data of `item_payload`, header and trailer included. Of each row the body is the
    line; its estimate of tokens is 0.
    """

    count: int
    blocks: Iterable[bytes] = field(repr=False)
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Source:
    """An input that is copied from another batch of the account, once that is final."""

    batch_id: int


async def create(conn: Connection, new: NewPipeline, given: Lines | Source) -> bool:
    """Store a pipeline with its input. Call in a durable transaction. False: its idempotency key was used before; roll back.

    Raises BudgetSpent, KeysUnavailable.
    """
    waits = isinstance(given, Source)
    batch = StageBatch(
        new.pipeline_id,
        new.request_id,
        new.tenant_id,
        new.pipeline_id,
        None,
        _any_model(new.flow),
        "",
        new.deadline_seconds,
        new.expires,
        feeds=True,
        fed=waits,
        state=BatchState.OPEN if waits else BatchState.COMPLETED,
        total=0 if isinstance(given, Source) else given.count,
        bytes=0 if isinstance(given, Source) else given.bytes,
        tags=new.tags,
        name=new.flow.name,
        correlation_id=new.correlation_id,
        traceparent=new.traceparent,
    )
    await stages.add(conn, batch)
    if new.key is not None:
        await batch_keys.add(conn, new.pipeline_id, new.key)
    if isinstance(given, Source):
        return await _add(conn, new, None, given.batch_id)
    await stages.copy_items(conn, given.blocks)
    await handoff.add(conn, new.pipeline_id, 1, range(given.count), size=given.bytes, inputs=True)
    return await _add(conn, new, given.count, None)


async def follow(conn: Connection, new: NewPipeline, kind: Kind = Kind.STAGE) -> bool:
    """Store a pipeline whose input is a batch that was stored in this transaction, and that runs. See `create`."""
    total, _ = await stages.adopt(conn, new.pipeline_id, kind)
    return await _add(conn, new, total, None)


async def find_key(conn: Connection, tenant_id: int, idempotency_key: str) -> tuple[UUID, bytes] | None:
    """The request id and the request hash of the pipeline with this key."""
    values = {"tenant_id": tenant_id, "idempotency_key": idempotency_key}
    row = await (await conn.execute(queries.FIND_KEY, values)).fetchone()
    return None if row is None else (row[0], row[1])


async def _add(conn: Connection, new: NewPipeline, inputs: int | None, source_id: int | None) -> bool:
    """Insert the row of the pipeline, its stages, and their batches. Raises BadInput for numbers out of range; BudgetSpent."""
    flow = new.flow
    if inputs is not None:
        counting.check_numbers(flow, inputs)
    values = {
        "pipeline_id": new.pipeline_id,
        "request_id": new.request_id,
        "tenant_id": new.tenant_id,
        "name": flow.name,
        "definition": new.definition,
        "inputs": inputs,
        "source_id": source_id,
        "budget": new.budget,
        "idempotency_key": new.idempotency_key,
        "request_hash": new.request_hash,
    }
    if await (await conn.execute(queries.ADD, values)).fetchone() is None:
        return False
    (await budgets.look(conn, [stage.line_id for stage in new.stages])).accept()
    ids = [new.pipeline_id, *(stage.batch_id for stage in new.stages)]
    for found, given in zip(flow.stages, new.stages, strict=True):
        await stages.add(conn, _batch(new, found.number, given, ids[found.parent]))
        if given.key is not None:
            await batch_keys.add(conn, given.batch_id, given.key)
    await conn.execute(
        queries.ADD_STAGES,
        {
            "pipeline_id": new.pipeline_id,
            "ns": [INPUT, *(stage.number for stage in flow.stages)],
            "batch_ids": ids,
            "names": [INPUT_NAME, *(stage.name for stage in flow.stages)],
            "packs": [None, *(-1 if isinstance(stage.pack, ByValue) else None for stage in flow.stages)],
            "waits_for": ["", *(",".join(map(str, stage.depends_on)) for stage in flow.stages)],
        },
    )
    return True


def _batch(new: NewPipeline, number: int, given: NewStage, parent_id: int) -> StageBatch:
    flow = new.flow
    stage = flow.stage(number)
    return StageBatch(
        given.batch_id,
        given.request_id,
        new.tenant_id,
        new.pipeline_id,
        parent_id,
        model_of(flow, number),
        endpoint_of(flow, number),
        new.deadline_seconds,
        new.expires,
        feeds=bool(flow.children(number)),
        fed=True,
        state=BatchState.PAUSED if stage.depends_on else BatchState.OPEN,
        kind=given.kind,
        line_id=given.line_id,
        policy=given.policy,
        tags=new.tags,
        metadata=given.metadata,
        name=stage.name,
        correlation_id=new.correlation_id,
        traceparent=new.traceparent,
    )


def model_of(flow: Definition, number: int) -> str:
    """The model of a stage; of one that makes no requests, that of its parent."""
    while number != INPUT:
        stage = flow.stage(number)
        if not isinstance(stage.work, External) and hasattr(stage.work, "model"):
            return stage.work.model
        number = stage.parent
    return _any_model(flow)


def endpoint_of(flow: Definition, number: int) -> str:
    """The engine's route of a stage; of one that makes no requests, nothing."""
    work = flow.stage(number).work
    return str(getattr(work, "endpoint", ""))


def _any_model(flow: Definition) -> str:
    """The model of the first stage that has one: every batch names a model."""
    return next((stage.work.model for stage in flow.stages if isinstance(stage.work, Request)), "")
