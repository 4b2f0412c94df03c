"""Events for those without a public URL: they stay until they are acknowledged.

A delivery to be fetched is never due to be sent. There is no position to lose: whoever begins anew sees all that is not
acknowledged, and an event that was committed late is never behind a reader.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import orjson

from app.db.pool import Connection
from app.errors import BadInput
from app.webhooks import sql
from app.webhooks.formats import Event, render

MOST = 1000


@dataclass(frozen=True, slots=True)
class Waiting:
    """An event that waits for one subscription; `body` as its format has it, JSON."""

    delivery_id: int
    endpoint_id: UUID
    queue_id: str
    event: Event
    body: bytes


async def waiting(
    conn: Connection, tenant_id: int, *, queue_id: str | None = None, after: int = 0, limit: int = 100
) -> list[Waiting]:
    """What is not acknowledged, the oldest first, beyond the delivery `after`; of one queue or of all. Raises BadInput."""
    if not 1 <= limit <= MOST:
        raise BadInput(f"limit: must be 1 to {MOST}")
    values = {"tenant_id": tenant_id, "queue_id": queue_id, "after": after, "limit": limit}
    rows = await (await conn.execute(sql.WAITING.encode(), values)).fetchall()
    return [_waiting(*row) for row in rows]


async def acknowledge(conn: Connection, tenant_id: int, ids: Sequence[int]) -> int:
    """Take events out, for ever. Those that are out already, or of others, are passed over. Returns how many went."""
    if len(ids) > MOST:
        raise BadInput(f"ids: at most {MOST} at once")
    values = {"tenant_id": tenant_id, "ids": list(ids)}
    return (await conn.execute(sql.ACKNOWLEDGE.encode(), values)).rowcount


def _waiting(delivery_id: int, endpoint_id: UUID, queue_id: str, shape: str, *happened: object) -> Waiting:
    message_id, kind, model, data, occurred_at = happened
    event = Event(message_id, kind, model, orjson.loads(data), occurred_at)  # type: ignore[arg-type]
    _, body = render(shape, event, endpoint_id)
    return Waiting(delivery_id, endpoint_id, queue_id, event, body)
