"""Whether every part looks into the same object store: one of them puts an object there, and the others have to find it."""

import socket
from dataclasses import asdict, dataclass
from uuid import UUID, uuid4

import structlog

from app.db.pool import Database
from app.errors import StorageError, StoreNotShared, StoreTaken
from app.files import sql
from app.settings import Settings
from app.storage import object_names, store
from app.storage.store import Store

_TEXT = "{writer} has put this here. By it the parts of one Slackwater know that they share a store, and with nobody else.\n"

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


async def check(found: StorageMarker | None, settings: Settings) -> None:
    """Raise StoreNotShared where the settings' store lacks the marker or has another installation's, StorageError where it
    cannot be asked. None: this installation has marked no store yet.
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
            f"The object store {store.place(settings)} is not the one that the other parts use: what {found.writer} has put into "
            f"{found.place} is not there. Files would vanish or stay for ever."
        ) from None


async def _check_exclusive(settings: Settings, ours: UUID | None) -> None:
    """Raise StoreTaken where another installation has marked the store: each would sweep away what the other put there."""
    own = ours and object_names.marker(ours)
    others = sorted([key async for key, _ in Store.of(settings).list(object_names.MARKERS) if key != own])
    if others:
        raise StoreTaken(
            f"The object store {store.place(settings)} is in use by another installation, which has put "
            f"{', '.join(others[:3])} there. Each would remove the files of the other."
        )


async def _marked(database: Database, settings: Settings, part: str) -> StorageMarker:
    """The marker of this part, or of another one that was faster.

    One part at a time makes it. Its name is on record before the object, which is there before the row says in which place: so
    nothing of ours that died half-way is ever taken for another installation's.
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
