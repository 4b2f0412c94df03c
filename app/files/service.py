"""The verbs of files: keep an upload, find, list, delete. Foreign and unknown ids read the same (`NotFound`)."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from app.db.pool import Connection, Database
from app.errors import BadInput, NotFound, StorageError
from app.files import ids, queries
from app.storage import keys
from app.storage.store import Store

MOST_LISTED = 10_000
_SLICE, _REFUSED_DAYS = 100, 30


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
    demand: Mapping[str, dict[str, int]],
) -> File:
    """Put an upload into the store, then register it. What could not be registered is taken out again."""
    key = keys.upload(tenant_id, file_id)
    values = {"file_id": file_id, "tenant_id": tenant_id, "purpose": purpose, "filename": filename, "bytes": size}
    values |= {"expires_seconds": expires_seconds, "lines": lines}
    values |= {"problems": Jsonb(list(problems), dumps=json.dumps) if problems else None, "demand": Jsonb(dict(demand))}
    await store.put_file(key, content)
    try:
        async with database.durable() as conn:
            row = await (await conn.execute(queries.INSERT_FILE.encode(), values)).fetchone()
    except Exception:
        with suppress(StorageError):
            await store.delete([key])
        raise
    assert row is not None
    return File(*row)


async def find(conn: Connection, tenant_id: int, file_id: UUID | None) -> File | None:
    """A file of the tenant that can be read; None is none."""
    if file_id is None:
        return None
    row = await (await conn.execute(queries.GET_FILE.encode(), {"tenant_id": tenant_id, "file_id": file_id})).fetchone()
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
    rows = await (await conn.execute(queries.list_files(ascending).encode(), values)).fetchall()
    return [File(*row) for row in rows[:limit]], len(rows) > limit


async def counted(database: Database, tenant_id: int, file: File, run: int, size: int) -> None:
    """Remember how large a file of a final batch is, so that it need not be made again to be listed."""
    values = {"tenant_id": tenant_id, "file_id": file.file_id, "run": run, "bytes": size}
    async with database.relaxed() as conn:
        await conn.execute(queries.COUNTED.encode(), values)


async def delete(database: Database, store: Store, tenant_id: int, file: File) -> None:
    """Remove a file. Batches that were made of it go on; results stay with their batch, and only this view of them ends."""
    values = {"tenant_id": tenant_id, "file_id": file.file_id}
    async with database.durable() as conn:
        await conn.execute(queries.DELETE_UPLOAD if file.request_id is None else queries.DELETE_OUTPUT, values)
    if file.request_id is None:
        await store.delete([keys.upload(tenant_id, file.file_id)])


async def expire(database: Database, store: Store) -> int:
    """Remove uploads whose time is over, and batches that were refused a month ago. Returns how many uploads."""
    async with database.relaxed() as conn:
        await conn.execute(queries.FORGET_REFUSED, {"days": _REFUSED_DAYS})
    count = 0
    while True:
        async with database.relaxed() as conn:
            rows = await (await conn.execute(queries.EXPIRED_FILES, {"limit": _SLICE})).fetchall()
        if not rows:
            return count
        await store.delete([keys.upload(tenant_id, file_id) for tenant_id, file_id in rows])
        async with database.durable() as conn:
            for tenant_id, file_id in rows:
                await conn.execute(queries.DELETE_UPLOAD, {"tenant_id": tenant_id, "file_id": file_id})
        count += len(rows)
