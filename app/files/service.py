"""The verbs of files: keep an upload, find, list, delete. Foreign and unknown ids read the same (`NotFound`)."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.types.json import Jsonb
from psycopg_pool import PoolTimeout

from app.db.pool import Connection, Database
from app.errors import BadInput, NotFound, StorageError
from app.files import ids, sql
from app.storage import object_names
from app.storage.store import Store

MOST_LISTED = 10_000
_SLICE, _REFUSED_DAYS = 100, 30
_ARRIVAL_SECONDS = 3600.0  # after which an object that was announced is not waited for any more
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class File:
    """An upload, or the output or the error file of a batch (`request_id`, `of_errors`), whose size may not be counted yet.

    `problems`: what is wrong with its lines, as a batch of it would tell. `demand`: what a batch of it asks for, by model.
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
) -> File:
    """Register an upload, put it into the store, then let it be seen. What could not be put is forgotten again; what died
    between is `expire`d.
    """
    key = object_names.upload(tenant_id, file_id)
    values = {"file_id": file_id, "tenant_id": tenant_id, "purpose": purpose, "filename": filename, "bytes": size}
    values |= {"expires_seconds": expires_seconds, "arrival_seconds": _ARRIVAL_SECONDS, "lines": lines}
    values |= {
        "problems": Jsonb(list(problems), dumps=json.dumps) if problems else None,
        "demand": None if demand is None else Jsonb(dict(demand)),
    }
    async with database.durable() as conn:
        await conn.execute(sql.INSERT_FILE, values)
    try:
        await store.put_file(key, content)
        async with database.durable() as conn:
            row = await (await conn.execute(sql.KEEP_FILE.encode(), values)).fetchone()
        if row is None:
            raise StorageError("The file took too long to be stored; send it again.")
    except Exception:
        with suppress(StorageError, psycopg.Error, PoolTimeout):  # the steward will do it
            await _remove(database, store, tenant_id, file_id)
        raise
    return File(*row)


async def find(conn: Connection, tenant_id: int, file_id: UUID | None) -> File | None:
    """A file of the tenant that can be read; None is none."""
    if file_id is None:
        return None
    row = await (await conn.execute(sql.GET_FILE.encode(), {"tenant_id": tenant_id, "file_id": file_id})).fetchone()
    return None if row is None else File(*row)


async def get(conn: Connection, tenant_id: int, written: str) -> File:
    """A file by its id as callers write it. Raises NotFound."""
    found = await find(conn, tenant_id, ids.read(written))
    if found is None:
        raise NotFound(f"No such File object: {written[:60]}", code=404)
    return found


async def listing(
    conn: Connection,
    tenant_id: int,
    *,
    purpose: str | None = None,
    after: str | None = None,
    limit: int = MOST_LISTED,
    ascending: bool = False,
) -> tuple[list[File], bool]:
    """A page of files, the newest first or the oldest, and whether there are more. Raises BadInput."""
    if not 1 <= limit <= MOST_LISTED:
        raise BadInput(f"limit: must be 1 to {MOST_LISTED}")
    beyond = ids.read(after) if after else None
    if after and beyond is None:
        return [], False
    values = {"tenant_id": tenant_id, "purpose": purpose, "after": beyond, "limit": limit + 1}
    rows = await (await conn.execute(sql.list_files(ascending).encode(), values)).fetchall()
    return [File(*row) for row in rows[:limit]], len(rows) > limit


async def note_cancel(conn: Connection, tenant_id: int, request_id: UUID) -> None:
    """A batch's cancel began now, if anybody looks at it as one of a file."""
    await conn.execute(sql.CANCELLING, {"tenant_id": tenant_id, "request_id": request_id})


async def begin_anew(conn: Connection, tenant_id: int, request_id: UUID) -> None:
    """What a batch says from now on is in new files; the ids of those before are gone. No matter if nobody has asked for any."""
    values = {"output_file_id": uuid4(), "error_file_id": uuid4()}
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
    """Batches that were refused for their file: when, and their request ids; the newest behind `after` first."""
    values = {"tenant_id": tenant_id, "metadata": Jsonb(dict(metadata)), "limit": limit}
    values |= {"created_after": created_after, "created_before": created_before}
    values |= {"after_at": after and after[0], "after": after and after[1]}
    query = sql.refused(metadata=bool(metadata)).encode()
    return [(row[0], row[1]) for row in await (await conn.execute(query, values)).fetchall()]


async def refused_at(conn: Connection, tenant_id: int, request_id: UUID) -> datetime | None:
    """When a batch was refused for its file; None: the tenant has no such one."""
    values = {"tenant_id": tenant_id, "request_id": request_id}
    row = await (await conn.execute(sql.REFUSED_AT, values)).fetchone()
    return None if row is None else row[0]


async def counted(database: Database, tenant_id: int, file: File, run: int, size: int) -> None:
    """Remember how large a file of a final batch is, so that it need not be made again to be listed."""
    values = {"tenant_id": tenant_id, "file_id": file.file_id, "run": run, "bytes": size}
    async with database.relaxed() as conn:
        await conn.execute(sql.COUNTED.encode(), values)


async def delete(database: Database, store: Store, tenant_id: int, file: File) -> None:
    """Remove a file. Batches that were made of it go on; results stay with their batch, and only this view of them ends."""
    values = {"tenant_id": tenant_id, "file_id": file.file_id}
    async with database.durable() as conn:
        await conn.execute(sql.END_UPLOAD if file.request_id is None else sql.DELETE_OUTPUT, values)
    if file.request_id is None:
        await _remove(database, store, tenant_id, file.file_id)


async def _remove(database: Database, store: Store, tenant_id: int, file_id: UUID) -> None:
    """The object first: while its row is there, it is not forgotten."""
    await store.delete([object_names.upload(tenant_id, file_id)])
    async with database.durable() as conn:
        await conn.execute(sql.DELETE_UPLOAD, {"tenant_id": tenant_id, "file_id": file_id})


async def forget(database: Database, store: Store, tenant_id: int) -> None:
    """Remove every file and upload of a tenant that has no batches left, some at a time."""
    for prefix in object_names.of_tenant(tenant_id):
        await store.delete_prefix(prefix)
    async with database.relaxed() as conn:
        for statement in sql.FORGET_FILES:
            while (await conn.execute(statement, {"tenant_id": tenant_id, "limit": _SLICE})).rowcount:
                pass


async def expire(database: Database, store: Store) -> int:
    """Remove uploads whose time is over, or that never arrived, and batches that were refused a month ago. Returns how many
    uploads.
    """
    async with database.relaxed() as conn:
        await conn.execute(sql.FORGET_REFUSED, {"days": _REFUSED_DAYS})
    count = 0
    while True:
        async with database.relaxed() as conn:
            rows = await (await conn.execute(sql.EXPIRED_FILES, {"limit": _SLICE})).fetchall()
        if not rows:
            return count
        await store.delete([object_names.upload(tenant_id, file_id) for tenant_id, file_id in rows])
        async with database.durable() as conn:
            for tenant_id, file_id in rows:
                await conn.execute(sql.DELETE_UPLOAD, {"tenant_id": tenant_id, "file_id": file_id})
        count += len(rows)


async def sweep(database: Database, store: Store) -> int:
    """Remove objects of files and uploads that have no row; a row comes before its objects. Returns how many."""
    count = 0
    for kind, query in sql.UNKNOWN.items():
        found: dict[str, UUID] = {}
        async for key, _ in store.list(f"{kind}/"):
            if (owner := object_names.owner(key)) is not None:
                found[key] = owner
            if len(found) == _PAGE:
                count += await _sweep(database, store, query, found)
                found = {}
        count += await _sweep(database, store, query, found)
    return count


async def _sweep(database: Database, store: Store, query: str, found: Mapping[str, UUID]) -> int:
    async with database.relaxed() as conn:
        rows = await (await conn.execute(query.encode(), {"ids": list(set(found.values()))})).fetchall()
    unknown = {row[0] for row in rows}
    orphans = [key for key, owner in found.items() if owner in unknown]
    await store.delete(orphans)
    return len(orphans)
