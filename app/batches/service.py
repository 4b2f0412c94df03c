"""The verbs of a batch: submit it, tell how it stands, settle it.

Each transaction here writes a state change together with its event; nothing else in the project finalises a batch.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from app.batches.intake import Intake
from app.batches.items import ItemRules
from app.db.pool import Connection, Database
from app.engines.catalogue import Model
from app.engines.service import ensure_pool
from app.errors import KeyInUse, KeyReused, StorageFull
from app.queue import care, ingest
from app.queue.cutting import Cut, cut
from app.settings import Settings
from app.states import BatchState
from app.tenants.service import Tenant
from app.webhooks import service as webhooks

CHAT = "/v1/chat/completions"
# Workers AI names no deadline; within a tenant this one orders batches by their age.
_DEFAULT_DEADLINE_SECONDS = 86_400.0
_FAILED = {"message": "Model execution failed", "internal_code": 5001, "http_code": 500}


@dataclass(frozen=True, slots=True)
class Order:
    """Who submits, to which model, and what travels with the batch."""

    tenant: Tenant
    model: Model
    correlation_id: str | None = None
    affinity: str | None = None
    tags: tuple[str, ...] = ()
    idempotency_key: str | None = None


async def submit_items(database: Database, settings: Settings, order: Order, items: Sequence[Any]) -> UUID:
    """Take a batch whose items are already parsed. All or nothing; returns the request id."""
    async with database.relaxed() as conn:
        batch_id = await ingest.next_batch_id(conn)
    with _intake(settings, order, batch_id) as intake:
        await asyncio.to_thread(intake.add_items, items)
        return await _commit(database, settings, order, intake)


async def submit_lines(database: Database, settings: Settings, order: Order, blocks: AsyncIterator[bytes]) -> UUID:
    """Take a batch as NDJSON, checked while it arrives. All or nothing; returns the request id."""
    async with database.relaxed() as conn:
        batch_id = await ingest.next_batch_id(conn)
    with _intake(settings, order, batch_id) as intake:
        async for block in blocks:
            await asyncio.to_thread(intake.add_block, block)
        return await _commit(database, settings, order, intake)


async def settle(conn: Connection) -> list[care.Settled]:
    """Fold finished chunks, make complete batches final and write their events. Call inside a durable transaction."""
    settled = await care.settle(conn)
    for batch in settled:
        succeeded = batch.state == BatchState.COMPLETED
        data = {
            "request_id": str(batch.request_id),
            "account_id": batch.account_id,
            "counts": {"total": batch.total, "succeeded": batch.ok, "failed": batch.failed},
            **({} if succeeded else _FAILED),
        }
        await webhooks.emit(
            conn,
            tenant_id=batch.tenant_id,
            kind="batch.succeeded" if succeeded else "batch.failed",
            model=batch.model,
            batch_id=batch.batch_id,
            run=batch.run,
            data=data,
        )
    return settled


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
    )


async def _commit(database: Database, settings: Settings, order: Order, intake: Intake) -> UUID:
    """The one transaction of a submit: batch, payload, chunks, place in the fair order, event."""
    await asyncio.to_thread(intake.close)
    estimates = intake.est_tokens
    cuts = cut(estimates, max_tokens=settings.chunk_tokens, max_items=settings.chunk_items)
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
        deadline_seconds=_DEFAULT_DEADLINE_SECONDS,
        correlation_id=order.correlation_id,
        affinity=order.affinity,
        tags=order.tags,
        idempotency_key=order.idempotency_key,
        request_hash=intake.request_hash if order.idempotency_key else None,
    )
    try:
        async with database.transaction() as conn:
            return await _store(conn, batch, order.tenant.account_id, intake, cuts)
    except psycopg.errors.DiskFull as error:
        raise StorageFull("the database's disk is full; nothing was stored, try again later") from error


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
