"""Submitting a batch: checked and spooled while it arrives, then written in one transaction with its event."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.batches.intake import prompt_length
from app.batches.intake.offload import Offload
from app.batches.intake.prompt_length import Close
from app.batches.intake.spool import Spool, SpoolOptions
from app.batches.intake.workers_ai import ItemIntake
from app.batches.validation import embeddings, workers_ai
from app.batches.validation.text_generation import Examine, ItemRules
from app.db.pool import Connection, Database
from app.db.transient_errors import with_retries
from app.engines.catalogue import Catalogue, Model, Task
from app.engines.requests import CHAT, EMBEDDINGS, Target
from app.engines.service import ensure_pool
from app.errors import KeyInUse, KeyReused
from app.events import BatchData, EventKind
from app.queue import ingest
from app.queue.answer_lengths import UsualLength
from app.queue.chunking import NewChunk, cut
from app.queue.types import Kind
from app.settings import Settings
from app.storage.store import Store
from app.tenants.service import Tenant
from app.webhooks import emitter

# Where items for a model of each task go in its engine, and how they are checked.
WORK: Mapping[Task, tuple[str, Examine]] = {
    "text-generation": (CHAT, workers_ai.examine),
    "text-embeddings": (EMBEDDINGS, embeddings.examine),
}
# Without a deadline of its own a batch aims at this one, and never expires; within a tenant it orders batches by age.
_DEFAULT_DEADLINE_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Order:
    """Who submits, to which model, and what travels with the batch. `deadline_seconds`: then it expires; None: never.

    `endpoint`: the engine route of its items; None: that of the model's task. `aim_seconds`: the deadline of the fair order
    where there is no other. `open_ended`: answers without a limit of their own may take what is left of the context.
    """

    tenant: Tenant
    model: Model
    correlation_id: str | None = None
    traceparent: str | None = None
    affinity: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, str] | None = None
    idempotency_key: str | None = None
    deadline_seconds: float | None = None
    endpoint: str | None = None
    kind: Kind = Kind.BATCH
    aim_seconds: float = _DEFAULT_DEADLINE_SECONDS
    open_ended: bool = False


KEY_REUSED = "Idempotency-Key: this key was used for another request; take a new key for a new request"
Register = Callable[[Connection, ingest.NewBatch], Awaitable[None]]


async def submit_items(database: Database, settings: Settings, order: Order, given: Sequence[Any]) -> UUID:
    """Take a batch whose items are already parsed. All or nothing; returns the request id."""
    async with database.relaxed() as conn:
        batch_id = await ingest.next_batch_id(conn)
    async with Offload(Store.of(settings)) as offload:
        with _intake(settings, order, batch_id) as intake:
            await asyncio.to_thread(intake.add_items, given)
            await check_fit(database, settings, order, intake.close_to_limit)
            return await commit(database, settings, order, intake, offload)


async def submit_lines(database: Database, settings: Settings, order: Order, blocks: AsyncIterator[bytes]) -> UUID:
    """Take a batch as NDJSON, checked while it arrives. All or nothing; returns the request id."""
    async with database.relaxed() as conn:
        batch_id = await ingest.next_batch_id(conn)
    async with Offload(Store.of(settings)) as offload:
        with _intake(settings, order, batch_id) as intake:
            async for block in blocks:
                await asyncio.to_thread(intake.add_block, block)
                await offload.put(intake.take_large())
            await asyncio.to_thread(intake.end_lines)
            await check_fit(database, settings, order, intake.close_to_limit)
            return await commit(database, settings, order, intake, offload)


async def check_fit(database: Database, settings: Settings, order: Order, close: Sequence[Close]) -> None:
    """Have those items counted that may be too long for the order's model. Raises BadInput."""
    if close:
        endpoint = order.endpoint or WORK[order.model.task][0]
        target = Target.of(order.model)
        await prompt_length.check(database, settings, target, endpoint, close, open_ended=order.open_ended)


def rules_of(model: Model, usual: UsualLength | None = None, *, stream: bool = False) -> ItemRules:
    """What an item, or a synchronous request, to this model may hold.

    `usual`: how long an answer without a limit is, on OpenAI's routes. None: on Workers AI's, where the
    model's default limits it.
    """
    return ItemRules(
        model.context_window,
        model.default_max_tokens,
        names=frozenset((model.name, *model.aliases)),
        one_choice=model.shape == "native" and usual is None,
        vision="vision" in model.capabilities,
        stream=stream,
        pooling=model.pooling,
        responses=model.shape == "responses",
        usual_tokens=usual(model) if usual else None,
    )


def rules_of_lines(models: Catalogue, usual: UsualLength) -> dict[str, ItemRules]:
    """What a line of a batch file may ask of each model: as OpenAI's routes do."""
    return {model.name: rules_of(model, usual) for model in models.models.values()}


def _intake(settings: Settings, order: Order, batch_id: int) -> ItemIntake:
    model = order.model
    return ItemIntake(
        batch_id,
        model.name,
        rules_of(model),
        WORK[model.task][1],
        **spool_options(settings),
    )


def spool_options(settings: Settings) -> SpoolOptions:
    """How submits are spooled on their way in."""
    return {
        "folder": settings.data_dir / "spool",
        "memory_bytes": int(settings.spool_memory_mb * 2**20),
        "line_bytes": int(settings.ndjson_line_mb * 2**20),
        "max_items": settings.batch_items,
        "object_bytes": settings.object_kb * 1024 or None,
    }


async def commit(
    database: Database,
    settings: Settings,
    order: Order,
    intake: Spool,
    offload: Offload,
    register: Register | None = None,
) -> UUID:
    """The one transaction of a submit: batch, payload, chunks, place in the fair order, event. Large bodies come before.

    `register` writes what else belongs to a new batch. Returns the request id.
    """
    await asyncio.to_thread(intake.close)
    await offload.put(intake.take_large())
    by_model = await asyncio.to_thread(_cuts, intake, settings)
    async with database.relaxed() as conn:
        pool_id = await ensure_pool(conn, order.model.served)
        cuts: dict[int, list[NewChunk]] = {pool_id: by_model[0]}
        for model, part in zip(intake.models[1:], by_model[1:], strict=True):
            cuts.setdefault(await ensure_pool(conn, model.served), []).extend(part)
        tells_items = await emitter.subscribed_to_items(conn, order.tenant.tenant_id)
    batch = _new_batch(order, intake, pool_id, tells_items=tells_items)

    async def store() -> UUID:
        async with database.transaction() as conn:
            request_id = await _store(conn, batch, order.tenant.account_id, intake, cuts)
            if request_id == batch.request_id:
                if register is not None:
                    await register(conn, batch)
                offload.seal()
        return request_id

    return await with_retries(store)


def _new_batch(order: Order, intake: Spool, pool_id: int, *, tells_items: bool) -> ingest.NewBatch:
    return ingest.NewBatch(
        batch_id=intake.batch_id,
        request_id=uuid.uuid4(),
        tenant_id=order.tenant.tenant_id,
        pool_id=pool_id,
        model=order.model.name,
        endpoint=order.endpoint or WORK[order.model.task][0],
        total=len(intake.est_tokens),
        deadline_seconds=order.deadline_seconds or order.aim_seconds,
        expires=order.deadline_seconds is not None,
        correlation_id=order.correlation_id,
        traceparent=order.traceparent,
        affinity=order.affinity,
        tags=order.tags,
        metadata=order.metadata,
        idempotency_key=order.idempotency_key,
        request_hash=intake.request_hash if order.idempotency_key or order.kind != Kind.BATCH else None,
        tells_items=tells_items,
        kind=order.kind,
        open_ended=order.open_ended,
    )


def _cuts(intake: Spool, settings: Settings) -> list[list[NewChunk]]:
    """The chunks of each of the intake's models, in their order; of one, where items name none."""
    tokens, items = settings.chunk_tokens, settings.chunk_items
    if len(intake.models) < 2:
        return [cut(intake.est_tokens, max_tokens=tokens, max_items=items, keys=intake.warm_keys)]
    found = []
    for place in range(len(intake.models)):
        seqs = [seq for seq, its in enumerate(intake.model_of) if its == place]
        estimates, keys = [intake.est_tokens[seq] for seq in seqs], [intake.warm_keys[seq] for seq in seqs]
        found.append(cut(estimates, max_tokens=tokens, max_items=items, keys=keys, seqs=seqs))
    return found


async def _store(
    conn: Connection, batch: ingest.NewBatch, account_id: str, intake: Spool, cuts: dict[int, list[NewChunk]]
) -> UUID:
    """Write the batch and its event, or find the batch that the idempotency key stands for. Returns the request id."""
    key = batch.idempotency_key
    if key is not None and not await ingest.reserve_key(conn, batch.tenant_id, key):
        raise KeyInUse("Idempotency-Key: a request with this key is being stored right now; ask again in a moment")
    own, elsewhere = cuts[batch.pool_id], {pool: part for pool, part in cuts.items() if pool != batch.pool_id}
    run = await ingest.enqueue(conn, batch, intake.blocks(), own, elsewhere)
    if run is None:
        assert key is not None
        return await _replay(conn, batch, key)
    if batch.kind != Kind.BATCH:
        return batch.request_id
    await emitter.emit(
        conn,
        tenant_id=batch.tenant_id,
        kind=EventKind.BATCH_QUEUED,
        model=batch.model,
        batch_id=batch.batch_id,
        run=run,
        data=BatchData(request_id=str(batch.request_id), account_id=account_id, traceparent=batch.traceparent),
    )
    return batch.request_id


async def _replay(conn: Connection, batch: ingest.NewBatch, key: str) -> UUID:
    """The request id of the batch that was stored under the key. Raises KeyReused if its items were others."""
    found = await ingest.find_key(conn, batch.tenant_id, key)
    assert found is not None
    request_id, request_hash = found
    if request_hash != batch.request_hash:
        raise KeyReused(KEY_REUSED)
    return request_id
