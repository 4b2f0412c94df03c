"""Events that their owner pulls because it has no public URL. Each stays until it is acknowledged.

A pulled delivery is never due, so it is never sent. A reader keeps no position: after a restart it reads everything that is not
acknowledged, and it cannot miss an event that was committed late.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app import events
from app.db.pool import Connection
from app.errors import BadInput, PageTooLong
from app.webhooks import delivery_sql as sql
from app.webhooks.formats import Event, render

MOST = 1000


@dataclass(frozen=True, slots=True)
class PulledEvent:
    """An event that is not acknowledged yet. `body`: JSON in the format of its subscription."""

    delivery_id: int
    endpoint_id: UUID
    queue_id: str
    event: Event
    body: bytes


async def pull(
    conn: Connection, tenant_id: int, *, queue_id: str | None = None, after: int = 0, limit: int = 100
) -> list[PulledEvent]:
    """The events that are not acknowledged, the oldest first, after the delivery `after`. Raises BadInput.

    `queue_id`: only of this queue; None: of all queues.
    """
    if not 1 <= limit <= MOST:
        raise PageTooLong(limit, MOST)
    values = {"tenant_id": tenant_id, "queue_id": queue_id, "after": after, "limit": limit}
    rows = await (await conn.execute(sql.PULL.encode(), values)).fetchall()
    return [_pulled(*row) for row in rows]


async def acknowledge(conn: Connection, tenant_id: int, ids: Sequence[int]) -> int:
    """Take events out of their queue for ever. Returns how many.

    Ids that are acknowledged already, or belong to another tenant, are ignored. Raises BadInput.
    """
    if len(ids) > MOST:
        raise BadInput(f"ids: at most {MOST} at once")
    values = {"tenant_id": tenant_id, "ids": list(ids)}
    return (await conn.execute(sql.ACKNOWLEDGE.encode(), values)).rowcount


def _pulled(delivery_id: int, endpoint_id: UUID, queue_id: str, shape: str, *stored: Any) -> PulledEvent:
    message_id, kind, model, data, occurred_at = stored
    event = Event(message_id, kind, model, events.from_json(kind, data), occurred_at)
    _, body = render(shape, event, endpoint_id)
    return PulledEvent(delivery_id, endpoint_id, queue_id, event, body)
