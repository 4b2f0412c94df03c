"""Uploaded files and parts of uploads, sealed while they are spooled, and opened while they are read.

The wrapped key is in the row of the file or of the upload, and goes with it.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import UUID

from app import cells
from app.db.pool import Connection, Database
from app.errors import KeysUnavailable
from app.files import sql
from app.sealing import batch_keys, frames
from app.sealing.batch_keys import NewKey
from app.sealing.frames import FrameWriter
from app.sealing.keyring import Keyring, WrappedKey, wanted
from app.sealing.sealed_form import Unreadable
from app.settings import Settings
from app.storage import object_names
from app.storage.store import Store


@dataclass(frozen=True, slots=True)
class FileSeal:
    """The key of a new file or upload, by its id."""

    owner: UUID
    key: NewKey

    def writer(self, part_id: UUID | None = None) -> FrameWriter:
        """Seals the file's object, or that of a part."""
        return FrameWriter(self.key.cipher, _place(self.owner, part_id))


async def new_seal(database: Database, settings: Settings, tenant_id: int, rule: str | None) -> FileSeal | None:
    """The seal of a new file or upload, with its id. None: it is stored in the clear. `rule`: see `keyring.wanted`.

    Raises KeysUnavailable.
    """
    if not wanted(settings, rule):
        return None
    owner = cells.new_timed_id()
    return FileSeal(owner, await batch_keys.make(database, Keyring.of(settings), tenant_id, owner.bytes))


async def seal_of_upload(database: Database, settings: Settings, tenant_id: int, upload_id: UUID) -> FileSeal | None:
    """The seal of a stored upload. None: its parts are stored in the clear. Raises KeysUnavailable."""
    async with database.relaxed() as conn:
        wrapped = await _read(conn, sql.UPLOAD_KEY, tenant_id, upload_id)
    if wrapped is None:
        return None
    cipher = await Keyring.of(settings).open(wrapped, upload_id.bytes)
    return FileSeal(upload_id, NewKey(tenant_id, cipher, wrapped))


def columns(seal: FileSeal | None) -> dict[str, object]:
    """The columns of the row that keep the key."""
    wrapped = seal.key.wrapped if seal else None
    return {"kek": wrapped and wrapped.kek, "wrapped_key": wrapped and wrapped.wrapped}


async def stream(
    database: Database, settings: Settings, tenant_id: int, file_id: UUID, part: tuple[int, int] | None = None
) -> AsyncIterator[bytes]:
    """The content of an uploaded file, or `part` (start, length) of it, in blocks. Raises StorageError, KeysUnavailable."""
    async with database.relaxed() as conn:
        wrapped = await _read(conn, sql.FILE_KEY, tenant_id, file_id)
    async for block in _opened(settings, object_names.upload(tenant_id, file_id), file_id, None, wrapped, part):
        yield block


async def stream_part(
    database: Database, settings: Settings, tenant_id: int, upload_id: UUID, part_id: UUID
) -> AsyncIterator[bytes]:
    """The content of a part of an upload, in blocks. Raises StorageError, KeysUnavailable."""
    async with database.relaxed() as conn:
        wrapped = await _read(conn, sql.UPLOAD_KEY, tenant_id, upload_id)
    key = object_names.part(tenant_id, upload_id, part_id)
    async for block in _opened(settings, key, upload_id, part_id, wrapped, None):
        yield block


async def _read(conn: Connection, query: str, tenant_id: int, owner: UUID) -> WrappedKey | None:
    row = await (await conn.execute(query.encode(), {"tenant_id": tenant_id, "owner": owner})).fetchone()
    return None if row is None or row[0] is None else WrappedKey(*row)


async def _opened(
    settings: Settings,
    key: str,
    owner: UUID,
    part_id: UUID | None,
    wrapped: WrappedKey | None,
    part: tuple[int, int] | None,
) -> AsyncIterator[bytes]:
    store = Store.of(settings)
    if wrapped is None:
        async for block in store.stream(key, part):
            yield block
        return
    cipher = await Keyring.of(settings).open(wrapped, owner.bytes)
    head = await store.get_range(key, 0, frames.HEAD)
    start, length = part or (0, 1 << 62)
    place, size = frames.sealed_range(start, length)
    sealed = store.stream(key, (place, min(size, 1 << 40)))
    first, skip = start // frames.FRAME, start % frames.FRAME
    try:
        async for frame in frames.opened(cipher, _place(owner, part_id), head, sealed, first=first, whole=part is None):
            piece = frame[skip : skip + length]
            skip, length = 0, length - len(piece)
            if piece:
                yield piece
    except Unreadable as error:
        raise KeysUnavailable(f"The file is not readable: {error}", gone=True) from error


def _place(owner: UUID, part_id: UUID | None) -> bytes:
    return owner.bytes if part_id is None else owner.bytes + part_id.bytes
