"""The verbs of files: keep an upload, find, list, delete. An id of another tenant is `NotFound`, as an unknown one is."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb
from psycopg_pool import PoolTimeout

from app import cells
from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record
from app.db.pool import Connection, Database
from app.errors import NotFound, PageTooLong, PlaceUnknown, StorageError
from app.files import ids, sealed_files, sql
from app.files.sealed_files import FileSeal
from app.sealing import batch_keys
from app.storage import late_removal, object_names
from app.storage.store import Store
from app.tenants.service import Tenant

MOST_LISTED = 10_000
_SLICE, _REFUSED_DAYS = 100, 30
_FORGOTTEN = {
    "code": "file_deleted",
    "line": None,
    "message": "The file had errors; it was deleted, and with it what they said.",
    "param": None,
}
_ARRIVAL_SECONDS = 3600.0  # a file whose object is not stored by then is removed
_PAGE = 1000

Check = Callable[[Connection], Awaitable[None]]


async def anything(conn: Connection) -> None:
    """The check that lets every file in."""


@dataclass(frozen=True, slots=True)
class File:
    """An upload, or the output or error file of a batch (`request_id`, `of_errors`).

    `bytes`: None while the size of an output file is not counted. `problems`: errors of its lines, as a batch of it would report
    them. `demand`: the requests and tokens that a batch of it needs, by model. `rewrites`: how often it was redacted.
    """

    file_id: UUID
    purpose: str
    filename: str
    bytes: int | None
    created_at: datetime
    expires_at: datetime | None
    lines: int
    problems: list[dict[str, Any]] | None
    demand: dict[str, dict[str, int]] | None
    request_id: UUID | None
    of_errors: bool | None
    rewrites: int


async def keep(
    database: Database,
    store: Store,
    content: Path,
    *,
    file_id: UUID,
    tenant_id: int,
    purpose: str,
    filename: str,
    size: int,
    expires_seconds: float,
    lines: int,
    problems: Sequence[dict[str, Any]],
    demand: Mapping[str, dict[str, int]] | None,
    check: Check = anything,
    seal: FileSeal | None = None,
) -> File:
    """Insert a hidden row, put the content into the store, then make the file visible.

    `check` is called in the transaction that inserts the row, before it does; where it raises, nothing is stored.
    `file_id`: with its time, which is that of the file. `seal`: with which the content was sealed.
    If the put fails, the row is deleted. If the process dies in between, `expire` deletes both later. Raises StorageError.
    """
    key = object_names.upload(tenant_id, file_id)
    values = {"file_id": file_id, "tenant_id": tenant_id, "purpose": purpose, "filename": filename, "bytes": size}
    values |= {"expires_seconds": expires_seconds, "arrival_seconds": _ARRIVAL_SECONDS, "lines": lines}
    values |= sealed_files.columns(seal) | {"created_at": cells.made_at(file_id)}
    values["problems"] = Jsonb(list(problems), dumps=json.dumps) if problems else None
    values["demand"] = None if demand is None else Jsonb(dict(demand))
    async with database.transaction() as conn:
        await check(conn)
        if seal is not None:
            await batch_keys.check_current(conn, seal.key)
        await conn.execute(sql.INSERT_FILE, values)
    try:
        await store.put_file(key, content)
        async with database.durable() as conn:
            row = await (await conn.execute(sql.KEEP_FILE.encode(), values)).fetchone()
        if row is None:
            raise StorageError("The file took too long to be stored; send it again.")
    except Exception:
        with suppress(StorageError, psycopg.Error, PoolTimeout):  # a maintenance worker removes it later
            await _remove(database, store, tenant_id, file_id)
        raise
    return File(*row)


async def find(conn: Connection, tenant_id: int, file_id: UUID | None) -> File | None:
    """A readable file of the tenant. None: there is none."""
    if file_id is None:
        return None
    row = await (await conn.execute(sql.GET_FILE.encode(), {"tenant_id": tenant_id, "file_id": file_id})).fetchone()
    return None if row is None else File(*row)


async def get(conn: Connection, tenant_id: int, public_id: str) -> File:
    """A file by its public id. Raises NotFound."""
    file = await find(conn, tenant_id, ids.parse_id(public_id))
    if file is None:
        raise NotFound(f"No such File object: {public_id[:60]}")
    return file


async def listing(
    conn: Connection,
    tenant_id: int,
    *,
    purpose: str | None = None,
    after: str | None = None,
    limit: int = MOST_LISTED,
    ascending: bool = False,
) -> tuple[list[File], bool]:
    """A page of files, newest first or oldest first, and whether there are more. `after`: a file, which may have been deleted.

    Raises BadInput, PlaceUnknown.
    """
    if not 1 <= limit <= MOST_LISTED:
        raise PageTooLong(limit, MOST_LISTED)
    after_id, at = await _place(conn, tenant_id, after) if after else (None, None)
    values = {"tenant_id": tenant_id, "purpose": purpose, "after": after_id, "after_at": at, "limit": limit + 1}
    rows = await (await conn.execute(sql.list_files(ascending).encode(), values)).fetchall()
    return [File(*row) for row in rows[:limit]], len(rows) > limit


async def _place(conn: Connection, tenant_id: int, after: str) -> tuple[UUID, datetime]:
    """The place of a file in the list: its id and its time. Raises PlaceUnknown."""
    file_id = ids.parse_id(after)
    if file_id is not None and (at := cells.made_at(file_id)) is not None:
        return file_id, at
    values = {"tenant_id": tenant_id, "file_id": file_id}
    row = await (await conn.execute(sql.PLACE_OF_OUTPUT, values)).fetchone()
    if file_id is None or row is None or row[0] is None:
        raise PlaceUnknown(after)
    return file_id, row[0]


async def note_cancel(conn: Connection, tenant_id: int, request_id: UUID) -> None:
    """Note that a cancel of the batch began now. Does nothing if the batch has no row as a batch of a file."""
    await conn.execute(sql.CANCELLING, {"tenant_id": tenant_id, "request_id": request_id})


async def assign_output_files(conn: Connection, tenant_id: int, request_id: UUID) -> None:
    """Give a batch new ids for its output and error files, for a new run. The old ones are only places in the list then."""
    values = {"output_file_id": cells.new_id(), "error_file_id": cells.new_id()}
    await conn.execute(sql.NEW_FILES, values | {"tenant_id": tenant_id, "request_id": request_id})


async def refused(
    conn: Connection,
    tenant_id: int,
    *,
    metadata: Mapping[str, str],
    created_after: datetime | None,
    created_before: datetime | None,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> list[tuple[datetime, UUID]]:
    """Batches that were refused because of their file, newest first after `after`: their times and request ids."""
    values = {"tenant_id": tenant_id, "metadata": Jsonb(dict(metadata)), "limit": limit}
    values |= {"created_after": created_after, "created_before": created_before}
    values |= {"after_at": after and after[0], "after": after and after[1]}
    query = sql.refused(metadata=bool(metadata)).encode()
    return [(row[0], row[1]) for row in await (await conn.execute(query, values)).fetchall()]


async def refused_at(conn: Connection, tenant_id: int, request_id: UUID) -> datetime | None:
    """When a batch was refused because of its file. None: the tenant has no such batch."""
    values = {"tenant_id": tenant_id, "request_id": request_id}
    row = await (await conn.execute(sql.REFUSED_AT, values)).fetchone()
    return None if row is None else row[0]


async def save_size(database: Database, tenant_id: int, file: File, run: int, size: int) -> None:
    """Save the size of a final batch's file, so that a listing need not generate the file to count it."""
    values = {"tenant_id": tenant_id, "file_id": file.file_id, "run": run, "bytes": size}
    async with database.relaxed() as conn:
        await conn.execute(sql.SAVE_SIZE.encode(), values)


async def forget_size(conn: Connection, batch_id: int) -> None:
    """Forget the sizes of a batch's files: its results are written anew, and the files have another content."""
    await conn.execute(sql.FORGET_SIZES, {"batch_id": batch_id})


async def delete(database: Database, store: Store, tenant: Tenant, file: File) -> None:
    """Delete an uploaded file. Batches made from it continue."""
    async with database.transaction() as conn:
        await conn.execute(sql.END_UPLOAD, {"tenant_id": tenant.tenant_id, "file_id": file.file_id})
        values = {"tenant_id": tenant.tenant_id, "input_file_id": ids.format_id(file.file_id)}
        await conn.execute(sql.FORGET_PROBLEMS, values | {"problems": Jsonb([_FORGOTTEN])})
        await _record_deletion(conn, tenant, file)
    await _remove(database, store, tenant.tenant_id, file.file_id)


async def hide_output(conn: Connection, tenant: Tenant, file: File) -> bool:
    """Hide an output or error file. Returns whether its batch has another one that can be read."""
    values = {"tenant_id": tenant.tenant_id, "file_id": file.file_id, "request_id": file.request_id}
    await conn.execute(sql.HIDE_OUTPUT, values)
    await _record_deletion(conn, tenant, file)
    return await (await conn.execute(sql.OUTPUTS_LEFT.encode(), values)).fetchone() is not None


async def _record_deletion(conn: Connection, tenant: Tenant, file: File) -> None:
    before = {"purpose": file.purpose, "bytes": file.bytes, "lines": file.lines}
    await log.record(conn, Record(Act.FILE_DELETE, ids.format_id(file.file_id), tenant.account_id, before=before))


async def discard(database: Database, store: Store, tenant_id: int, file: File) -> None:
    """Delete an upload that its owner never saw."""
    async with database.durable() as conn:
        await conn.execute(sql.END_UPLOAD, {"tenant_id": tenant_id, "file_id": file.file_id})
    await _remove(database, store, tenant_id, file.file_id)


async def _remove(database: Database, store: Store, tenant_id: int, file_id: UUID) -> None:
    """Deletes the object first: while the row exists, `expire` still finds it."""
    await store.delete([object_names.upload(tenant_id, file_id)])
    async with database.durable() as conn:
        await conn.execute(sql.DELETE_UPLOAD, {"tenant_id": tenant_id, "file_id": file_id})


async def forget(database: Database, store: Store, tenant_id: int) -> None:
    """Delete every file and upload of a tenant that has no batches left, some at a time."""
    for prefix in object_names.of_tenant(tenant_id):
        await store.delete_prefix(prefix)
    async with database.relaxed() as conn:
        for statement in sql.FORGET_FILES:
            while (await conn.execute(statement, {"tenant_id": tenant_id, "limit": _SLICE})).rowcount:
                pass


async def expire(database: Database, store: Store, grace_days: int = 0) -> int:
    """Delete files that have expired or whose object never arrived, and batches that were refused 30 days ago; take out of the
    lists what nobody can read any more. Returns the number of files. The objects of those that have expired are removed
    `grace_days` later, of those that were deleted at once.
    """
    async with database.relaxed() as conn:
        await conn.execute(sql.FORGET_REFUSED, {"days": _REFUSED_DAYS})
        await conn.execute(sql.LIST_LATE)
        while (await conn.execute(sql.UNLIST, {"limit": _PAGE})).rowcount:
            pass
    count = 0
    while True:
        async with database.relaxed() as conn:
            rows = await (await conn.execute(sql.EXPIRED_FILES, {"limit": _SLICE})).fetchall()
        if not rows:
            return count
        async with database.durable() as conn:
            for deleted, days in ((False, grace_days), (True, 0)):
                keys = [object_names.upload(*row[:2]) for row in rows if row[2] is deleted]
                await late_removal.remove(conn, store, keys, days)
            for tenant_id, file_id, _ in rows:
                await conn.execute(sql.DELETE_UPLOAD, {"tenant_id": tenant_id, "file_id": file_id})
        count += len(rows)


async def sweep(database: Database, store: Store, grace_days: int = 0) -> int:
    """Delete objects of files and uploads that have no row, `grace_days` after they were found. A row is inserted before its
    objects. Returns how many were found.
    """
    count = 0
    for kind, query in sql.UNKNOWN.items():
        page: dict[str, UUID] = {}
        async for key, _ in store.list(f"{kind}/"):
            if (owner := object_names.owner(key)) is not None:
                page[key] = owner
            if len(page) == _PAGE:
                count += await _sweep(database, store, query, page, grace_days)
                page = {}
        count += await _sweep(database, store, query, page, grace_days)
    return count


async def _sweep(database: Database, store: Store, query: str, owners: Mapping[str, UUID], grace_days: int) -> int:
    async with database.durable() as conn:
        rows = await (await conn.execute(query.encode(), {"ids": list(set(owners.values()))})).fetchall()
        unknown = {row[0] for row in rows}
        orphans = [key for key, owner in owners.items() if owner in unknown]
        return await late_removal.remove(conn, store, orphans, grace_days)
