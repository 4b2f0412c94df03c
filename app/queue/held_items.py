"""Gives the item of a batch of one another body: before the batch goes on, and when it has ended."""

from dataclasses import dataclass

from app.db import day_tables
from app.db.pool import Connection, Database
from app.queue import held_items_sql as queries
from app.queue.bodies import StoredBodies
from app.sealing import batch_keys
from app.sealing.keyring import Keyring
from app.settings import Settings
from app.storage import object_names
from app.storage.store import Store

_BYTES_PER_TOKEN = 4
_ANY_WINDOW = 2**62


@dataclass(frozen=True, slots=True)
class HeldItem:
    """The row of an item with its new body. `bytes`: of the body in the clear. `window`: the context window of its model; None:
    not known.
    """

    batch_id: int
    body: bytes
    stored: bool
    vault: bytes | None
    bytes: int
    window: int | None = None


async def prepare(database: Database, settings: Settings, batch_id: int, body: bytes, vault: bytes | None) -> HeldItem:
    """Seal the body as its batch is, and store it, if it is large or its object is there. `vault`: of its placeholders, sealed
    under the secret key. No transaction may be open.
    """
    async with database.relaxed() as conn:
        key = await batch_keys.read(conn, batch_id)
        seals_bodies = await batch_keys.seals_bodies(conn, batch_id)
        row = await (await day_tables.execute(conn, queries.IS_STORED, batch_id, {"batch_id": batch_id})).fetchone()
    size = len(body)
    seal = None if key is None else await StoredBodies(database, Keyring.of(settings), batch_id).seal()
    if seal is not None and vault is not None:
        vault = seal.vault(0, vault)
    if seal is not None and seals_bodies:
        body = seal.payload(0, body)
    stored = bool(row and row[0]) or (bool(settings.object_kb) and size > settings.object_kb * 1024)
    if stored:
        name = object_names.payload(batch_id, 0)
        await Store.of(settings).put(name, body)
        body = name.encode()
    return HeldItem(batch_id, body, stored, vault, size)


async def rewrite(conn: Connection, held: HeldItem) -> None:
    """Write the item, and what its chunk can cost. Call in the transaction in which the batch goes on."""
    tokens = held.bytes // _BYTES_PER_TOKEN + 1
    values = {
        "batch_id": held.batch_id,
        "body": held.body,
        "stored": held.stored,
        "vault": held.vault,
        "tokens": tokens,
        "bytes": held.bytes,
        "window": held.window or _ANY_WINDOW,
    }
    await day_tables.execute(conn, queries.REWRITE, held.batch_id, values)
    await conn.execute(queries.ESTIMATE, values)
