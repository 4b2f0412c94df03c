"""The verbs of OpenAI's uploads, which come in parts. Parts are kept in the object store until the upload ends."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from uuid import UUID, uuid4

from app import cells
from app.db.pool import Connection, Database
from app.errors import BadInput, Conflict, NotFound
from app.files import sealed_files, sql
from app.files.sealed_files import FileSeal
from app.files.service import Check, anything
from app.sealing import batch_keys
from app.states import UploadState
from app.storage import object_names
from app.storage.store import Store

PREFIX, PART_PREFIX = "upload_", "part_"
OPEN_SECONDS = 3600.0  # an upload must be completed within this time
MAX_PARTS = 10_000
TIMES_SENT = 2  # a part whose answer was lost is sent again; the parts may have this many times the announced bytes
_SLICE = 100


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload. `bytes`: as announced. `file_seconds`: how long the file will be kept. `file_id`: once it is completed.

    `over`: whether its time has passed, by the database's clock.
    """

    upload_id: UUID
    filename: str
    purpose: str
    bytes: int
    state: UploadState
    created_at: datetime
    expires_at: datetime
    file_seconds: float
    file_id: UUID | None
    over: bool

    @property
    def status(self) -> str:
        """Its state, or `expired` if its time has passed while it was pending."""
        return "expired" if self.state == UploadState.PENDING and self.over else self.state


async def create(
    conn: Connection,
    tenant_id: int,
    *,
    filename: str,
    purpose: str,
    size: int,
    file_seconds: float,
    seal: FileSeal | None = None,
) -> Upload:
    """Create an upload. `seal`: of its parts. Call inside a transaction. Raises KeysUnavailable."""
    upload_id = cells.new_id() if seal is None else seal.owner
    values = {"upload_id": upload_id, "tenant_id": tenant_id, "filename": filename, "purpose": purpose, "bytes": size}
    values |= {"seconds": OPEN_SECONDS, "file_seconds": file_seconds}
    values |= sealed_files.columns(seal)
    if seal is not None:
        await batch_keys.check_current(conn, seal.key)
    row = await (await conn.execute(sql.INSERT_UPLOAD, values)).fetchone()
    assert row is not None
    return _upload(row)


async def get(conn: Connection, tenant_id: int, upload_id: UUID) -> Upload:
    """An upload of the tenant. Raises NotFound."""
    row = await (await conn.execute(sql.GET_UPLOAD, _key(tenant_id, upload_id))).fetchone()
    if row is None:
        raise NotFound(f"No such Upload object: {PREFIX}{upload_id.hex}")
    return _upload(row)


async def add(
    database: Database,
    store: Store,
    tenant_id: int,
    upload_id: UUID,
    content: Path,
    size: int,
    check: Check = anything,
    part_id: UUID | None = None,
) -> tuple[UUID, datetime]:
    """Store a part. Returns its id and its time. Raises NotFound, BadInput, and Conflict once the upload has ended.

    `check` is called first in the transaction that inserts the row. `part_id`: with which the content was sealed.
    The row is inserted before the object is put, so that parts in transit count. It is deleted if the put fails.
    """
    part_id = part_id or uuid4()
    values = _key(tenant_id, upload_id) | {"part_id": part_id, "bytes": size}
    async with database.transaction() as conn:
        await check(conn)
        await conn.execute(sql.LOCK_UPLOAD, values)  # so that concurrent parts are counted together
        upload = await get(conn, tenant_id, upload_id)
        check_open(upload)
        count, before = await _sum(conn, upload_id)
        _check_room(upload, count, before, size)
        row = await (await conn.execute(sql.INSERT_PART, values)).fetchone()
    assert row is not None
    try:
        await store.put_file(object_names.part(tenant_id, upload_id, part_id), content)
    except BaseException:
        async with database.durable() as conn:
            await conn.execute(sql.DELETE_PART, values)
        raise
    return part_id, row[0]


async def _sum(conn: Connection, upload_id: UUID) -> tuple[int, int]:
    """The number of an upload's parts, and the sum of their bytes."""
    row = await (await conn.execute(sql.SUM_OF_PARTS, {"upload_id": upload_id})).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def _check_room(upload: Upload, count: int, before: int, size: int) -> None:
    """Raises BadInput or Conflict unless the upload takes another part of this size."""
    if size > upload.bytes:
        raise BadInput(
            f"data: this part has {size} bytes, but the whole upload was announced with {upload.bytes}", param="data"
        )
    if before + size > upload.bytes * TIMES_SENT:
        limit = f"{TIMES_SENT} times the {upload.bytes} bytes that were announced"
        raise BadInput(
            f"data: the parts of this upload already have {before} bytes; the limit is {limit}", param="data"
        )
    if count >= MAX_PARTS:
        raise Conflict(f"The upload already has {MAX_PARTS} parts, the most that it may have")


async def check_parts(conn: Connection, upload: Upload, part_ids: Sequence[UUID | None]) -> None:
    """Raises BadInput unless these are distinct parts of the upload whose sizes add up to the announced bytes."""
    rows = await (await conn.execute(sql.PARTS, {"upload_id": upload.upload_id})).fetchall()
    sizes: dict[UUID | None, int] = dict(rows)
    for position, part_id in enumerate(part_ids):
        if part_id not in sizes:
            raise BadInput(f"part_ids[{position}]: is not a part of this upload", param="part_ids")
    if len(set(part_ids)) < len(part_ids):
        raise BadInput("part_ids: a part appears twice", param="part_ids")
    size = sum(sizes[part_id] for part_id in part_ids)
    if size != upload.bytes:
        raise BadInput(f"part_ids: these parts have {size} bytes, but {upload.bytes} were announced", param="part_ids")


async def complete(conn: Connection, tenant_id: int, upload_id: UUID, file_id: UUID) -> Upload | None:
    """Complete the upload as this file. None: it has ended in another way meanwhile."""
    values = _key(tenant_id, upload_id) | {"file_id": file_id}
    row = await (await conn.execute(sql.COMPLETE_UPLOAD, values)).fetchone()
    return None if row is None else _upload(row)


async def cancel(database: Database, store: Store, tenant_id: int, upload_id: UUID) -> Upload:
    """Cancel an upload. Cancelling it twice is no error. Raises NotFound, and Conflict if it is completed."""
    async with database.durable() as conn:
        row = await (await conn.execute(sql.CANCEL_UPLOAD, _key(tenant_id, upload_id))).fetchone()
        upload = await get(conn, tenant_id, upload_id) if row is None else _upload(row)
    if upload.state != UploadState.CANCELLED:
        raise Conflict(f"The upload is {upload.state}; only a pending upload can be cancelled")
    await store.delete_prefix(object_names.parts(tenant_id, upload_id))
    return upload


async def expire(database: Database, store: Store) -> int:
    """Delete uploads that were not completed in time, and old completed ones. Returns how many."""
    count = 0
    while True:
        async with database.relaxed() as conn:
            rows = await (await conn.execute(sql.OLD_UPLOADS, {"limit": _SLICE})).fetchall()
        for tenant_id, upload_id in rows:
            await store.delete_prefix(object_names.parts(tenant_id, upload_id))
            async with database.durable() as conn:
                await conn.execute(sql.DELETE_UPLOAD_OF_PARTS, _key(tenant_id, upload_id))
        count += len(rows)
        if len(rows) < _SLICE:
            return count


def check_open(upload: Upload) -> None:
    """Raises Conflict unless the upload takes parts."""
    if upload.status != UploadState.PENDING:
        raise Conflict(f"The upload is {upload.status}; it takes no more parts")


def _key(tenant_id: int, upload_id: UUID) -> dict[str, object]:
    return {"tenant_id": tenant_id, "upload_id": upload_id}


def _upload(row: Sequence[object]) -> Upload:
    upload = Upload(*row)  # type: ignore[arg-type]
    return replace(upload, state=UploadState(upload.state))
