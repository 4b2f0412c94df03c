"""Batches that start when others have ended, however those end.

Such a batch is paused, and has a row of `dependency` for each batch that it needs. The steward starts it.
"""

from collections.abc import Collection, Sequence
from uuid import UUID

from app.db.pool import Connection
from app.errors import BadInput
from app.queue import batch_state, chunk_sweeps
from app.queue import dependencies_sql as queries

FIELD = "depends_on"
MOST = 64  # batches that one may need


async def add(conn: Connection, tenant_id: int, batch_id: int, request_id: UUID, needs: Sequence[UUID]) -> bool:
    """Let a new batch wait for these, of the same account. False: all have ended, so it starts. Call in its transaction.

    Raises BadInput.
    """
    values = {"tenant_id": tenant_id, "request_ids": list(needs)}
    rows = await (await conn.execute(queries.FIND, values)).fetchall()
    for place, (found, _) in enumerate(rows):
        if found is None:
            message = f"{FIELD}[{place}]: this account has no batch 'batch_{needs[place].hex}'"
            raise BadInput(message, param=f"{FIELD}[{place}]")
    unfinished = sorted({needed for needed, final in rows if not final})
    if not unfinished:
        return False
    await conn.execute(queries.ADD, {"batch_id": batch_id, "needs": unfinished})
    await batch_state.transition(conn, "pause", tenant_id, request_id)
    return True


async def hold(conn: Connection, tenant_id: int, request_id: UUID, *, held: bool) -> bool | None:
    """Pause (`held`) or resume a batch that waits for others: whether it stays paused when those have ended.

    Returns whether it was held before; None: it waits for none. Call in a transaction.
    """
    values = {"tenant_id": tenant_id, "request_id": request_id, "held": held}
    row = await (await conn.execute(queries.HOLD, values)).fetchone()
    return None if row is None else bool(row[0])


async def start(conn: Connection) -> list[int]:
    """Start the batches that wait for nothing any more. Returns their ids. Call in a transaction."""
    started = sorted(batch_id for (batch_id,) in await (await conn.execute(queries.START)).fetchall())
    for batch_id in started:
        await chunk_sweeps.sweep_batch(conn, batch_id)
    return started


async def needed(conn: Connection, batch_id: int) -> list[UUID]:
    """The unfinished batches that it waits for; none if its owner has paused it."""
    return [
        request_id for (request_id,) in await (await conn.execute(queries.NEEDED, {"batch_id": batch_id})).fetchall()
    ]


async def waiting(conn: Connection, batch_ids: Collection[int]) -> set[int]:
    """Those of the batches that wait for others."""
    rows = await conn.execute(queries.WAITING, {"batch_ids": list(batch_ids)})
    return {batch_id for (batch_id,) in await rows.fetchall()}
