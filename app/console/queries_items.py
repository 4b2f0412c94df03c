"""Reads of the items of a batch: pages of them by outcome, one with its runs, and its bodies."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import orjson

from app.console import queries_items_sql as sql
from app.console.queries import BatchRow
from app.db import day_tables
from app.db.pool import Connection
from app.queue import items
from app.queue.bodies import StoredBodies
from app.queue.items import ItemFacts
from app.sealing.keyring import Keyring
from app.tracing.sampling import SLOW_FACTOR, SLOW_SECONDS

ITEM_ROWS = 20
WALKED = tuple(sql.WALKS)  # lists that no index has
LISTS = ("all", "answered", "failed", *WALKED)


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Up to ITEM_ROWS + 1 items of a list. `looked_to`: the last item that a walk looked at before it stopped; None: the list is
    complete from its place on. `slow_ms`: from which time on an item is slow; None: nobody asked, or no time is known.
    """

    kind: str
    items: Sequence[ItemFacts]
    looked_to: int | None = None
    slow_ms: float | None = None


async def item_page(
    conn: Connection, keyring: Keyring, row: BatchRow, kind: str, after: int, limit: int = ITEM_ROWS
) -> ItemPage:
    """A page of one of LISTS from item number `after` on."""
    if kind in WALKED:
        return await _walk(conn, keyring, row, kind, after, limit + 1)
    if kind != "answered":
        failed = kind == "failed"
        found = await items.page(conn, keyring, row.batch_id, row.run, after=after, failed=failed, limit=limit + 1)
        return ItemPage(kind, found)
    values = {"batch_id": row.batch_id, "after": after, "limit": limit + 1}
    rows = await (await day_tables.execute(conn, sql.ANSWERED_ITEMS, row.batch_id, values)).fetchall()
    return ItemPage(kind, await _items(conn, keyring, row.batch_id, rows))


async def _walk(conn: Connection, keyring: Keyring, row: BatchRow, kind: str, after: int, limit: int) -> ItemPage:
    """A list that no index has, from a bounded number of results."""
    values: dict[str, Any] = {"batch_id": row.batch_id, "after": after}
    limit_ms = None
    if kind == "slow":
        of_batch = {"batch_id": row.batch_id, "total": row.total}
        [(usual,)] = await (await day_tables.execute(conn, sql.USUAL_MS, row.batch_id, of_batch)).fetchall()
        limit_ms = None if usual is None else max(SLOW_FACTOR * usual, 1000 * SLOW_SECONDS)
        if limit_ms is None:
            return ItemPage(kind, [])
    more = {"limit": limit} | ({"slow_ms": limit_ms} if kind == "slow" else {})
    rows = await (await day_tables.execute(conn, sql.walked(kind), row.batch_id, values | more)).fetchall()
    looked_to = None
    if len(rows) < limit:
        [(last, stopped)] = await (await day_tables.execute(conn, sql.WALK_END, row.batch_id, values)).fetchall()
        looked_to = last if stopped else None
    return ItemPage(kind, await _items(conn, keyring, row.batch_id, rows), looked_to, limit_ms)


async def tries(conn: Connection, keyring: Keyring, batch_id: int, seq: int) -> list[ItemFacts]:
    """An item with each of its results, by run. Empty: there is no such item."""
    values = {"batch_id": batch_id, "seq": seq}
    rows = await (await day_tables.execute(conn, sql.TRIES, batch_id, values)).fetchall()
    return await _items(conn, keyring, batch_id, rows)


async def _items(conn: Connection, keyring: Keyring, batch_id: int, rows: Sequence[Sequence[Any]]) -> list[ItemFacts]:
    stored = StoredBodies(conn, keyring, batch_id)
    return [await _item(stored, row) for row in rows]


async def _item(stored: StoredBodies, row: Sequence[Any]) -> ItemFacts:
    *facts, body = row
    problem = orjson.loads(await stored.result(facts[0], facts[6], body, ok=False)) if body else {}
    values = [*facts[:4], None if facts[4] is None else facts[4] == 1, *facts[5:]]
    return replace(ItemFacts(*values), code=problem.get("code"), message=problem.get("message"))


class Bodies(NamedTuple):
    """Prompt and answer of an item as they are stored: inline, or the keys of objects."""

    prompt: bytes
    prompt_stored: bool
    answer: bytes | None
    answer_stored: bool | None
    ok: bool
    run: int | None


async def bodies(conn: Connection, batch_id: int, seq: int) -> Bodies | None:
    """What an item says. Only a reveal reads it."""
    values = {"batch_id": batch_id, "seq": seq}
    row = await (await day_tables.execute(conn, sql.BODIES, batch_id, values, binary=True)).fetchone()
    return None if row is None else Bodies(*row)
