"""Whether every part looks into the same object store: one of them puts an object there, and the others have to find it."""

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
    """Which object was put where and by whom; `bodies`: bodies of items may lie there."""

    name: UUID
    writer: str
    place: str
    bodies: bool


async def read(database: Database) -> StorageMarker | None:
    """What the database says of its store; None: nobody has used one yet."""
    async with database.relaxed() as conn:
        row = await (await conn.execute(sql.MARKER)).fetchone()
    return None if row is None else StorageMarker(*row)


async def require(database: Database, settings: Settings, part: str) -> None:
    """Make sure that the part's store is the database's; the first part to come marks its own. Raises StoreNotShared.

    A store that cannot be reached refuses nobody: what needs it will say so.
    """
    try:
        found = await read(database) or await _marked(database, settings, part)
        await check(found, settings)
    except StorageError as error:
        log.warning("objects.unavailable", error=str(error.__cause__ or error).strip())
        return
    if settings.object_kb and not found.bodies:
        async with database.durable() as conn:
            await conn.execute(sql.BODIES)


async def require_bodies(database: Database, settings: Settings, part: str) -> None:
    """The same for a part that needs the store only where bodies of items lie there. Raises StoreNotShared."""
    found = await read(database)
    if settings.object_kb or (found is not None and found.bodies):
        await require(database, settings, part)


async def check(found: StorageMarker, settings: Settings) -> None:
    """Raise StoreNotShared where the settings' store lacks the marker, StorageError where it cannot be asked."""
    try:
        await Store.of(settings).get(object_names.marker(found.name))
    except StorageError as error:
        if not error.missing:
            raise
        raise StoreNotShared(
            f"The object store {store.place(settings)} is not the one that the other parts use: what {found.writer} has put into "
            f"{found.place} is not there. Files would vanish or stay for ever."
        ) from None


async def _marked(database: Database, settings: Settings, part: str) -> StorageMarker:
    """The marker of this part, or of another one that was faster. The object comes first: whoever sees the row finds it."""
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
