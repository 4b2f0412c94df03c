"""Reads all that is stored of the items of a batch, and writes it anew: only as it was read, and not while a worker has it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from app.db import byte_pages, day_tables
from app.db.pool import Connection, Database
from app.queue import rewriting_sql as sql


class StoredItem(NamedTuple):
    """An item as it is stored. `names`: its reference and its session. `leased`: a worker has it."""

    seq: int
    body: bytes
    stored: bool
    vault: bytes | None
    names: str
    leased: bool


class StoredResult(NamedTuple):
    """A result as it is stored."""

    seq: int
    run: int
    ok: bool
    body: bytes
    stored: bool


class NewItem(NamedTuple):
    """What an item is to be. None: as it is. `events`: number, as the row was, as it is to be."""

    body: bytes | None
    vault: bytes | None
    results: Sequence[tuple[StoredResult, bytes]]
    events: Sequence[tuple[int, bytes, bytes]]


class Changed(Exception):
    """What was read is not what is stored any more."""


async def batches(database: Database, tenant_id: int, after: int, limit: int) -> list[tuple[int, str]]:
    """The next batches of an account that have contents: their ids, and the texts that name or label them."""
    async with database.relaxed() as conn:
        values = {"tenant_id": tenant_id, "after": after, "limit": limit}
        return [(row[0], row[1]) for row in await (await conn.execute(sql.BATCHES, values)).fetchall()]


async def items(database: Database, batch_id: int, after: int, limit: int) -> list[StoredItem]:
    """Items from number `after` on, at most so many; none: there are no more. Raises NotFound: their day was dropped."""
    values = {"batch_id": batch_id, "after": after, "limit": limit}
    async with database.relaxed() as conn:
        rows, _ = await byte_pages.read(await day_tables.execute(conn, sql.ITEMS, batch_id, values), limit)
    return [StoredItem(*row) for row in rows]


async def results(database: Database, batch_id: int, low: int, high: int) -> list[StoredResult]:
    """All results of the items with these numbers, of every run. Raises NotFound."""
    return [StoredResult(*row) for row in await _read(database, sql.RESULTS, batch_id, low=low, high=high)]


async def events(database: Database, batch_id: int) -> list[tuple[int, bytes]]:
    """The rows of events of a response, by number."""
    return [(row[0], row[1]) for row in await _read(database, sql.EVENTS, batch_id)]


async def _read(database: Database, query: str, batch_id: int, **values: object) -> list[tuple[Any, ...]]:
    async with database.relaxed() as conn:
        cursor = await day_tables.execute(conn, query, batch_id, {"batch_id": batch_id} | values)
        return await cursor.fetchall()


async def write(conn: Connection, batch_id: int, item: StoredItem, new: NewItem) -> Sequence[str]:
    """Write an item anew. Call inside a transaction. Returns the keys of the objects that nothing refers to any more.

    Raises Changed, NotFound.
    """
    chunks = await conn.execute(sql.LOCK_CHUNK, {"batch_id": batch_id, "seq": item.seq})
    if any(leased for (leased,) in await chunks.fetchall()):
        raise Changed
    body = {"body": item.body, "stored": item.stored} if new.body is None else {"body": new.body, "stored": False}
    row = {"seq": item.seq, "was": item.body, "vault_was": item.vault, "vault": new.vault, **body}
    await _one(conn, sql.WRITE_ITEM, batch_id, row)
    moved = [item.body] if item.stored and new.body is not None else []
    for result, other in new.results:
        row = {"seq": result.seq, "run": result.run, "was": result.body, "body": other}
        await _one(conn, sql.WRITE_RESULT, batch_id, row)
        moved += [result.body] if result.stored else []
    for number, was, other in new.events:
        await _one(conn, sql.WRITE_EVENTS, batch_id, {"number": number, "was": was, "body": other})
    return [key.decode() for key in moved]


async def _one(conn: Connection, statement: str, batch_id: int, values: Mapping[str, object]) -> None:
    cursor = await day_tables.execute(conn, statement, batch_id, {"batch_id": batch_id, **values})
    if cursor.rowcount != 1:
        raise Changed
