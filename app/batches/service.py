"""Submitting a batch: checked and spooled while it arrives, then written in one transaction with its event."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.batches.intake import Intake
from app.batches.items import ItemRules
from app.batches.offload import Offload
from app.db.pool import Connection, Database
from app.engines.catalogue import Model
from app.engines.service import ensure_pool
from app.errors import KeyInUse, KeyReused
from app.queue import ingest
from app.queue.cutting import Cut, cut
from app.settings import Settings
from app.storage.store import Store
from app.tenants.service import Tenant
from app.webhooks import service as webhooks

CHAT = "/v1/chat/completions"
# Without a deadline of its own a batch aims at this one, and never expires; within a tenant it orders batches by age.
_DEFAULT_DEADLINE_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Order:
    """Who submits, to which model, and what travels with the batch. `deadline_seconds`: then it expires; None: never."""

    tenant: Tenant
    model: Model
    correlation_id: str | None = None
    affinity: str | None = None
    tags: tuple[str, ...] = ()
    idempotency_key: str | None = None
    deadline_seconds: float | None = None


async def submit_items(database: Database, settings: Settings, order: Order, items: Sequence[Any]) -> UUID:
    """Take a batch whose items are already parsed. All or nothing; returns the request id."""
    async with database.relaxed() as conn:
        batch_id = await ingest.next_batch_id(conn)
    async with Offload(Store.of(settings)) as offload:
        with _intake(settings, order, batch_id) as intake:
            await asyncio.to_thread(intake.add_items, items)
            return await _commit(database, settings, order, intake, offload)


async def submit_lines(database: Database, settings: Settings, order: Order, blocks: AsyncIterator[bytes]) -> UUID:
    """Take a batch as NDJSON, checked while it arrives. All or nothing; returns the request id."""
    async with database.relaxed() as conn:
        batch_id = await ingest.next_batch_id(conn)
    async with Offload(Store.of(settings)) as offload:
        with _intake(settings, order, batch_id) as intake:
            async for block in blocks:
                await asyncio.to_thread(intake.add_block, block)
                await offload.put(intake.take_large())
            return await _commit(database, settings, order, intake, offload)


def _intake(settings: Settings, order: Order, batch_id: int) -> Intake:
    model = order.model
    rules = ItemRules(
        model.context_window,
        model.default_max_tokens,
        names=frozenset((model.name, *model.aliases)),
        one_choice=model.shape == "native",
        vision="vision" in model.capabilities,
    )
    return Intake(
        batch_id,
        model.name,
        rules,
        folder=settings.data_dir / "spool",
        memory_bytes=int(settings.spool_memory_mb * 2**20),
        line_bytes=int(settings.ndjson_line_mb * 2**20),
        max_items=settings.batch_items,
        object_bytes=settings.object_kb * 1024 or None,
    )


async def _commit(database: Database, settings: Settings, order: Order, intake: Intake, offload: Offload) -> UUID:
    """The one transaction of a submit: batch, payload, chunks, place in the fair order, event. Large bodies come before."""
    await asyncio.to_thread(intake.close)
    await offload.put(intake.take_large())
    estimates = intake.est_tokens
    cuts = await asyncio.to_thread(
        cut, estimates, max_tokens=settings.chunk_tokens, max_items=settings.chunk_items, keys=intake.warm_keys
    )
    async with database.relaxed() as conn:
        pool_id = await ensure_pool(conn, order.model.served)
    batch = ingest.NewBatch(
        batch_id=intake.batch_id,
        request_id=uuid.uuid4(),
        tenant_id=order.tenant.tenant_id,
        pool_id=pool_id,
        model=order.model.name,
        endpoint=CHAT,
        total=len(estimates),
        deadline_seconds=order.deadline_seconds or _DEFAULT_DEADLINE_SECONDS,
        expires=order.deadline_seconds is not None,
        correlation_id=order.correlation_id,
        affinity=order.affinity,
        tags=order.tags,
        idempotency_key=order.idempotency_key,
        request_hash=intake.request_hash if order.idempotency_key else None,
    )
    async with database.transaction() as conn:
        request_id = await _store(conn, batch, order.tenant.account_id, intake, cuts)
        if request_id == batch.request_id:
            offload.seal()
    return request_id


async def _store(
    conn: Connection, batch: ingest.NewBatch, account_id: str, intake: Intake, cuts: Sequence[Cut]
) -> UUID:
    """Write the batch and its event, or find the batch that the idempotency key stands for. Returns the request id."""
    key = batch.idempotency_key
    if key is not None and not await ingest.reserve_key(conn, batch.tenant_id, key):
        raise KeyInUse("Idempotency-Key: a request with this key is being stored right now; ask again in a moment")
    run = await ingest.enqueue(conn, batch, intake.blocks(), cuts)
    if run is None:
        assert key is not None
        return await _replay(conn, batch, key)
    await webhooks.emit(
        conn,
        tenant_id=batch.tenant_id,
        kind="batch.queued",
        model=batch.model,
        batch_id=batch.batch_id,
        run=run,
        data={"request_id": str(batch.request_id), "account_id": account_id},
    )
    return batch.request_id


async def _replay(conn: Connection, batch: ingest.NewBatch, key: str) -> UUID:
    """The request id of the batch that was stored under the key. Raises KeyReused if its items were others."""
    found = await ingest.find_key(conn, batch.tenant_id, key)
    assert found is not None
    request_id, request_hash = found
    if request_hash != batch.request_hash:
        raise KeyReused("Idempotency-Key: this key was used for another request; take a new key for a new request")
    return request_id
