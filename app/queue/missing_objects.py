"""Finds bodies of items whose objects are not in the store."""

from collections.abc import AsyncIterator
from uuid import UUID

from app.db.pool import Connection
from app.queue import missing_objects_sql as queries
from app.storage import object_names
from app.storage.store import Store


async def missing(conn: Connection, store: Store) -> AsyncIterator[tuple[UUID, int]]:
    """The batches that lack objects, with how many. Reads the items of all days. Raises StorageError."""
    for batch_id, request_id in await (await conn.execute(queries.BATCHES)).fetchall():
        rows = await (await conn.execute(queries.KEYS, {"batch_id": batch_id})).fetchall()
        there = {key for prefix in object_names.of_batch(batch_id) async for key, _ in store.list(prefix)}
        if lacking := sum(key not in there for (key,) in rows):
            yield request_id, lacking
