"""Deletes the contents of a final batch: its key, its rows in the clear, its objects. Counts, usage and hash stay.

`mark` destroys the key and hides the batch's contents, in one transaction. `clean` removes what is left. It may be
interrupted and repeated: the steward continues what a process left.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from app.db.pool import Connection, Database
from app.queue import removal
from app.queue import shredding_sql as queries
from app.queue.removal import EndedBatch
from app.sealing import batch_keys
from app.states import BatchState
from app.storage import object_names
from app.storage.store import Store


@dataclass(frozen=True, slots=True)
class FoundBatch:
    """A batch whose contents may be deleted. `over`: it is final, and all is counted.
    `shredded_at`: it was done before. `pipeline_id`: of which it is a stage.
    """

    batch_id: int
    request_id: UUID
    state: BatchState
    model: str
    run: int
    total: int
    ok: int
    failed: int
    finalized_at: datetime | None
    shredded_at: datetime | None
    traceparent: str | None
    over: bool
    pipeline_id: int | None = None


async def find(conn: Connection, tenant_id: int, request_id: UUID) -> FoundBatch | None:
    """A batch of the tenant, locked. None: it has no such batch. Call inside a transaction."""
    values = {"tenant_id": tenant_id, "request_id": request_id}
    row = await (await conn.execute(queries.FIND, values)).fetchone()
    return None if row is None else FoundBatch(row[0], row[1], BatchState(row[2]), *row[3:])


async def mark(conn: Connection, batch_id: int) -> datetime:
    """Destroy the key of a batch that is over, and hide its contents. Returns when. Call in the transaction of `find`."""
    await batch_keys.forget(conn, batch_id)
    row = await (await conn.execute(queries.MARK, {"batch_id": batch_id})).fetchone()
    assert row is not None
    moment: datetime = row[0]
    return moment


async def clean(database: Database, store: Store, batch: EndedBatch) -> None:
    """Remove the rows and objects of a marked batch, some at a time."""
    values = {"batch_id": batch.batch_id}
    await removal.remove_items(database, batch)
    async with database.relaxed() as conn:
        await conn.execute(queries.FORGET_EVENTS, values)
    for prefix in object_names.of_batch(batch.batch_id):
        await store.delete_prefix(prefix)
    async with database.durable() as conn:
        await conn.execute(queries.DONE, values)


async def sweep(database: Database, store: Store) -> int:
    """Continue what was interrupted. Returns the number of batches."""
    async with database.relaxed() as conn:
        rows = await (await conn.execute(queries.PENDING)).fetchall()
    for batch_id, total in rows:
        await clean(database, store, EndedBatch(batch_id, total))
    return len(rows)
