"""Stores results of items that no worker ran: answers from outside, and the errors of those that never came."""

from collections.abc import Mapping

from app.db import day_tables
from app.db.pool import Connection
from app.queue import outside_results_sql as queries
from app.queue.rewriting import Changed


async def store(
    conn: Connection, batch_id: int, run: int, bodies: Mapping[int, bytes], error: str | None = None
) -> None:
    """Store a result for each of these items, mark them to be handed on, and count them.

    `error`: the class of their error, whose JSON the bodies then are; None: they are answers. The caller holds what says that
    each item gets one result, such as the row of a parked item.
    """
    items = {"seqs": list(bodies), "bodies": list(bodies.values())}
    values = {"batch_id": batch_id, "run": run, "ok": int(error is None), "error": error}
    await day_tables.execute(conn, queries.STORE, batch_id, {**values, **items})


async def keep_vault(conn: Connection, batch_id: int, seq: int, vault: bytes, was: bytes | None) -> None:
    """Give an item the vault of what it asks and of its answer. Call in the transaction that stores the answer.

    Raises Changed if it has another vault than `was`.
    """
    values = {"batch_id": batch_id, "seq": seq, "vault": vault, "was": was}
    if (await day_tables.execute(conn, queries.KEEP_VAULT, batch_id, values)).rowcount != 1:
        raise Changed
