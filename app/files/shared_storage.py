"""Checks that all processes use the same object store: one of them puts a marker object there, the others must find it."""

import socket
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID, uuid4

import structlog

from app.db.pool import Database
from app.errors import StorageError, StoreNotShared
from app.files import sql
from app.settings import Settings
from app.storage import object_names, store
from app.storage.store import Store

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class StorageMarker:
    """The marker's object, its store and its writer. `bodies`: the store may contain bodies of items."""

    name: UUID
    writer: str
    place: str
    bodies: bool


async def read(database: Database) -> StorageMarker | None:
    """The marker in the database. None: no process has used a store yet."""
    async with database.relaxed() as conn:
        row = await (await conn.execute(sql.MARKER)).fetchone()
    return None if row is None else StorageMarker(*row)


async def require(database: Database, settings: Settings, part: str) -> None:
    """Check that the store of `part` has the database's marker. The first part writes the marker. Raises StoreNotShared.

    A store that cannot be reached does not stop the part: operations that need the store report the error themselves.
    """
    try:
        found = await read(database) or await _write_marker(database, settings, part)
        await check(found, settings)
    except StorageError as error:
        log.warning("objects.unavailable", error=str(error.__cause__ or error).strip())
        return
    if settings.object_kb and not found.bodies:
        async with database.durable() as conn:
            await conn.execute(sql.BODIES)


async def require_bodies(database: Database, settings: Settings, part: str) -> None:
    """As `require`, for a part that needs the store only if it may contain bodies of items. Raises StoreNotShared."""
    found = await read(database)
    if settings.object_kb or (found is not None and found.bodies):
        await require(database, settings, part)


async def check(found: StorageMarker, settings: Settings) -> None:
    """Raises StoreNotShared if the settings' store lacks the marker, StorageError if the store cannot be reached."""
    try:
        await Store.of(settings).get(object_names.marker(found.name))
    except StorageError as error:
        if not error.missing:
            raise
        raise StoreNotShared(
            f"The object store {store.place(settings)} is not the one that the other parts use: the object that {found.writer} "
            f"put into {found.place} is not there. Files would vanish or stay for ever."
        ) from None


async def _write_marker(database: Database, settings: Settings, part: str) -> StorageMarker:
    """Write a marker, the object before the row. Returns it, or the one of a faster part."""
    objects, name = Store.of(settings), uuid4()
    await objects.put(
        object_names.marker(name), b"The parts of one Slackwater know by this object that they share a store.\n"
    )
    values = {"marker": name, "writer": f"{part} on {socket.gethostname()}", "place": store.place(settings)}
    async with database.durable() as conn:
        await conn.execute(sql.MARK, values | {"bodies": settings.object_kb > 0})
    found = await read(database)
    assert found is not None
    if found.name != name:
        with suppress(StorageError):
            await objects.delete([object_names.marker(name)])
    return found
