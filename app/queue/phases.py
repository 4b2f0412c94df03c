"""The phases of batches: what each waited for, from when until when. The steward writes them (`app.batches.phases`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from app.db.pool import Connection
from app.queue import phases_sql as queries

KEPT = 500  # phases of one batch; a gate may open and close for days


@dataclass(frozen=True, slots=True)
class Phase:
    """A batch waited for `code`, or was `running`, from `at` until `until` (None: it lasts)."""

    at: datetime
    until: datetime | None
    code: str


class OpenBatch(NamedTuple):
    """A batch that is not final, at its place in the order of submits."""

    created_at: datetime
    batch_id: int
    tenant_id: int
    request_id: UUID


async def open_batches(conn: Connection, after: OpenBatch | None, limit: int) -> list[OpenBatch]:
    """The next batches that are not final, the oldest first."""
    values = {"after_at": after and after.created_at, "after": after and after.batch_id, "limit": limit}
    return [OpenBatch(*row) for row in await (await conn.execute(queries.OPEN, values)).fetchall()]


async def note(conn: Connection, codes: Mapping[int, str]) -> int:
    """Store what these batches wait for now, by batch id. Returns how many began to wait for something else.

    Call inside a transaction.
    """
    seen = {"batch_ids": list(codes), "codes": list(codes.values())}
    await conn.execute(queries.CLOSE, seen)
    begun = [row[0] for row in await (await conn.execute(queries.BEGIN, seen)).fetchall()]
    if begun:
        await conn.execute(queries.TRIM, {"batch_ids": begun, "rows": KEPT})
    return len(begun)


async def end(conn: Connection, batch_ids: Sequence[int]) -> None:
    """End the last phases of batches that have become final. Call in the transaction that ends them."""
    if batch_ids:
        await conn.execute(queries.END, {"batch_ids": list(batch_ids)})


async def present(conn: Connection, batch_id: int) -> Phase | None:
    """The phase of a batch that lasts; None: nobody has looked at it yet, or it is final."""
    row = await (await conn.execute(queries.PRESENT, {"batch_id": batch_id})).fetchone()
    return None if row is None else Phase(*row)


async def of_batch(conn: Connection, batch_id: int) -> list[Phase]:
    """The phases of a batch in their order, at most KEPT of them, the latest ones."""
    rows = await (await conn.execute(queries.OF_BATCH, {"batch_id": batch_id, "limit": KEPT})).fetchall()
    return [Phase(*row) for row in reversed(rows)]
