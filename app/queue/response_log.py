"""Single requests in the queue, and the event log of those that stream.

Appends check the lease's fence. The statement that appends also assigns the numbers, so that they continue when another worker
takes over.
"""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

import orjson

from app.db import byte_pages, day_tables
from app.db.pool import Connection
from app.errors import NotFound
from app.queue import response_log_sql as queries
from app.queue.bodies import BatchSeal, StoredBodies, is_incomplete
from app.queue.types import Kind, Lease
from app.sealing import batch_keys
from app.sealing.keyring import Keyring
from app.storage import late_removal, object_names

_ANSWER_ROWS = 10_000
_EVENT_ROWS = 100  # read at once, at most


async def find(conn: Connection, tenant_id: int, request_id: UUID, kind: Kind) -> int | None:
    """The batch id of the tenant's single request. None: there is none, or its contents were deleted."""
    values = {"tenant_id": tenant_id, "request_id": request_id, "kind": kind}
    row = await (await conn.execute(queries.FIND, values)).fetchone()
    return row[0] if row is not None and await _has_contents(conn, row[0]) else None


async def find_same(conn: Connection, tenant_id: int, kind: Kind, request_hash: bytes, seconds: float) -> UUID | None:
    """The newest request of this kind with the same hash that has not ended, or was answered in the last `seconds`."""
    values = {"tenant_id": tenant_id, "kind": kind, "request_hash": request_hash, "seconds": seconds}
    for batch_id, request_id in await (await conn.execute(queries.FIND_SAME, values)).fetchall():
        if await _has_contents(conn, batch_id):
            same: UUID = request_id
            return same
    return None


async def _has_contents(conn: Connection, batch_id: int) -> bool:
    try:
        cursor = await day_tables.execute(conn, queries.HAS_CONTENTS, batch_id, {"batch_id": batch_id})
    except NotFound:
        return False
    return await cursor.fetchone() is not None


async def has_room(conn: Connection, served: str) -> bool:
    """Whether an engine of this model has free allowance and no chunk is waiting."""
    row = await (await conn.execute(queries.HAS_ROOM, {"model": served})).fetchone()
    return bool(row and row[0])


async def begin_events(conn: Connection, batch_id: int, events: Sequence[bytes], seal: BatchSeal | None = None) -> None:
    """Write the first events of a request. Call in the transaction that queues it."""
    await conn.execute(queries.BEGIN_EVENTS, _rows(batch_id, events, seal))


async def append_events(conn: Connection, lease: Lease, events: Sequence[bytes], seal: BatchSeal | None = None) -> bool:
    """Append events, which are JSON objects. False: the lease is lost, and nothing was written."""
    fence = {"chunk_id": lease.chunk_id, "token": lease.token, "worker_id": lease.worker_id}
    row = await (await conn.execute(queries.APPEND_EVENTS, _rows(lease.batch_id, events, seal) | fence)).fetchone()
    return row is not None


def _rows(batch_id: int, events: Sequence[bytes], seal: BatchSeal | None) -> dict[str, object]:
    body = b"[" + b",".join(events) + b"]"
    return {"batch_id": batch_id, "count": len(events), "body": seal.events(body) if seal else body}


async def events(conn: Connection, batch_id: int, after: int, keyring: Keyring) -> list[tuple[int, dict[str, Any]]]:
    """The next events after this number, with their numbers. Empty: there are no more. Raises KeysUnavailable."""
    values = {"batch_id": batch_id, "after": after, "limit": _EVENT_ROWS}
    rows, _ = await byte_pages.read(await conn.execute(queries.EVENTS, values), _EVENT_ROWS)
    stored = StoredBodies(conn, keyring, batch_id)
    opened = [(number, await stored.events(body)) for number, body in rows]
    numbered = ((number + i, event) for number, body in opened for i, event in enumerate(orjson.loads(body)))
    return [(number, event) for number, event in numbered if number > after]


async def incomplete(conn: Connection, batch_ids: Collection[int]) -> set[int]:
    """Those of these background responses whose answer was cut short: its status is `incomplete`, not `completed`."""
    found = set[int]()
    for ids in day_tables.by_day(batch_ids):
        after, more = -1, True
        while more:
            values = {"ids": ids, "after": after, "limit": _ANSWER_ROWS}
            cursor = await day_tables.execute(conn, queries.PERHAPS_INCOMPLETE, ids[0], values)
            rows, more = await byte_pages.read(cursor, _ANSWER_ROWS)
            found |= {batch_id for batch_id, stored, body in rows if _is_cut(body, stored=stored)}
            after = rows[-1][0] if rows else after
    return found


def _is_cut(body: bytes, *, stored: bool) -> bool:
    return object_names.is_incomplete(body.decode()) if stored else is_incomplete(body)


async def forget(conn: Connection, batch_id: int) -> list[str]:
    """Delete the request, its answer and its events. Call inside a transaction, for a final batch.

    Returns the keys of the objects to delete after that transaction, which a duty does, should this process not come to it.
    """
    of_batch = {"batch_id": batch_id}
    stored = await (await day_tables.execute(conn, queries.STORED, batch_id, of_batch)).fetchall()
    await batch_keys.forget(conn, batch_id)
    for statement in queries.FORGET:
        await day_tables.execute(conn, statement, batch_id, of_batch)
    keys = [key for (key,) in stored]
    if keys:
        await late_removal.plan(conn, keys)
    return keys
