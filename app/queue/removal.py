"""Delete single batches, some rows at a time, for an account that is being deleted. Retention drops whole days instead."""

from contextlib import suppress
from dataclasses import dataclass

from app.db import day_tables
from app.db.pool import Connection, Database
from app.errors import NotFound
from app.queue import retention_sql as queries
from app.storage import object_names
from app.storage.store import Store

_BATCHES, _ITEMS = 50, 2000


@dataclass(frozen=True, slots=True)
class EndedBatch:
    """A final batch without chunks and uncounted results."""

    batch_id: int
    total: int


async def ended(conn: Connection, tenant_id: int) -> list[EndedBatch]:
    """Up to _BATCHES of a tenant's batches that can be removed."""
    rows = await conn.execute(queries.ENDED, {"tenant_id": tenant_id, "limit": _BATCHES})
    return [EndedBatch(*row) for row in await rows.fetchall()]


async def remove(database: Database, store: Store, batch: EndedBatch) -> None:
    """Remove a batch: first its items, then its objects, then its own row and events. Safe to interrupt and repeat."""
    await remove_items(database, batch)
    for prefix in object_names.of_batch(batch.batch_id):
        await store.delete_prefix(prefix)
    async with database.transaction() as conn:
        for statement in queries.FORGET:
            await conn.execute(statement, {"ids": [batch.batch_id]})


async def remove_items(database: Database, batch: EndedBatch) -> None:
    """Remove the results and items of a batch, some at a time. A table that retention has dropped has none left."""
    async with database.relaxed() as conn:
        low = 0
        with suppress(NotFound):
            while (first := await _next_item(conn, batch.batch_id, low)) is not None:
                low = first + _ITEMS
                for statement in queries.FORGET_ITEMS:
                    values = {"batch_id": batch.batch_id, "low": first, "high": low}
                    await day_tables.execute(conn, statement, batch.batch_id, values)


async def _next_item(conn: Connection, batch_id: int, low: int) -> int | None:
    """The first item from this number on; None: there is none."""
    row = await (
        await day_tables.execute(conn, queries.NEXT_ITEM, batch_id, {"batch_id": batch_id, "low": low})
    ).fetchone()
    return None if row is None else row[0]


async def remove_shares(conn: Connection, tenant_id: int) -> None:
    """Remove a tenant without batches from the fair order. Call inside a transaction."""
    await conn.execute(queries.FORGET_SHARES, {"tenant_id": tenant_id})
