"""Checks that all processes use the same object store: one of them puts a marker object there, the others must find it."""

import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from uuid import UUID, uuid4

import structlog

from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.errors import StorageError, StoreNotShared, StoreTaken
from app.files import sql
from app.settings import Settings
from app.storage import object_names, store
from app.storage.store import Store

PATIENCE_SECONDS = 5.0
_TEXT = "{writer} has put this here. By it the parts of one Slackwater know that they share a store, and with nobody else.\n"

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


async def checked(settings: Settings, part: str, *, only_bodies: bool = False) -> bool:
    """Check the store before a part starts, as `require`, or with `only_bodies` as `require_bodies`.

    Returns False if the database does not answer, so that nothing is known. Raises StoreNotShared.
    """
    check_of = require_bodies if only_bodies else require
    async with Database.of(settings, part, patience_seconds=PATIENCE_SECONDS) as database:
        with suppress(*TRANSIENT):
            await check_of(database, settings, part)
            return True
    return False


async def check(found: StorageMarker | None, settings: Settings) -> None:
    """Check the settings' store. `found` None: this installation has not marked a store yet.

    Raises StoreNotShared if the store lacks the marker or has that of another installation, StorageError if it cannot be reached.
    """
    if found is not None:
        await _check_shared(found, settings)
    await _check_exclusive(settings, found.name if found else None)


async def _check_shared(found: StorageMarker, settings: Settings) -> None:
    try:
        await Store.of(settings).get(object_names.marker(found.name))
    except StorageError as error:
        if not error.missing:
            raise
        raise StoreNotShared(
            f"The object store {store.place(settings)} is not the one that the other parts use: the object that {found.writer} "
            f"put into {found.place} is not there. Files would vanish or stay for ever."
        ) from None


async def _check_exclusive(settings: Settings, ours: UUID | None) -> None:
    """Raises StoreTaken if another installation has marked the store: each would remove the objects of the other."""
    own = ours and object_names.marker(ours)
    others = sorted([key async for key, _ in Store.of(settings).list(object_names.MARKERS) if key != own])
    if others:
        raise StoreTaken(
            f"The object store {store.place(settings)} is in use by another installation, which has put "
            f"{', '.join(others[:3])} there. Each would remove the files of the other."
        )


async def _write_marker(database: Database, settings: Settings, part: str) -> StorageMarker:
    """Write a marker, one part at a time. Returns it, or the one of a faster part.

    The row has the marker's name before the object exists, and the store's place only after. So an object of ours is never
    taken for another installation's, even if its writer died half-way.
    """
    objects, name = Store.of(settings), uuid4()
    marker = StorageMarker(name, f"{part} on {socket.gethostname()}", store.place(settings), settings.object_kb > 0)
    values = asdict(marker)
    async with database.relaxed() as turn, turn.transaction():
        await turn.execute(sql.MARKING)
        if (row := await (await turn.execute(sql.MARKER)).fetchone()) is not None:
            return StorageMarker(*row)
        async with database.durable() as conn:
            begun = await (await conn.execute(sql.BEGUN)).fetchone()
            if begun is not None:
                await objects.delete([object_names.marker(begun[0])])
            await _check_exclusive(settings, None)
            await conn.execute(sql.BEGIN_MARK, values)
            await objects.put(object_names.marker(name), _TEXT.format(writer=marker.writer).encode())
            await conn.execute(sql.MARK, values)
    return marker
