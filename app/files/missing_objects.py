"""Finds files whose objects are not in the store."""

from collections.abc import AsyncIterator

from app.db.pool import Connection
from app.files import ids, sql
from app.storage import object_names
from app.storage.store import Store


async def missing(conn: Connection, store: Store) -> AsyncIterator[str]:
    """The public ids of the files that lack their object. Raises StorageError."""
    there = {key async for key, _ in store.list(object_names.FILES)}
    for tenant_id, file_id in await (await conn.execute(sql.STORED_FILES)).fetchall():
        if object_names.upload(tenant_id, file_id) not in there:
            yield ids.format_id(file_id)
