"""Finds due deliveries and publishes hints for them. The steward and every notifier run it; one more never does harm."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from app.db.pool import Connection, Database
from app.settings import Settings
from app.webhooks import delivery_outcomes
from app.webhooks import delivery_sql as sql

LIMIT = 500


class HintPublisher(Protocol):
    """Publishes hints on the broker: `app.tasks.producer.Hints`."""

    async def endpoints(self, endpoint_ids: list[UUID]) -> bool:
        """Publish one hint for each endpoint. False: the broker did not take them."""


async def sweep(database: Database, hints: HintPublisher, settings: Settings) -> int:
    """End expired leases, then hint at the endpoints with due deliveries. Returns how many hints were published.

    The stamps are committed before the hints are published, so two sweeps do not hint at the same endpoint. If the broker
    refuses, they are taken back. If this process dies in between, they expire after `webhook_rehint_seconds`.
    """
    async with database.relaxed() as conn:
        await delivery_outcomes.reap(conn)
        endpoint_ids = await take_due(conn, rehint_seconds=settings.webhook_rehint_seconds, limit=LIMIT)
    if not endpoint_ids:
        return 0
    if await hints.endpoints(endpoint_ids):
        return len(endpoint_ids)
    async with database.relaxed() as conn:
        await unhint(conn, endpoint_ids)
    return 0


async def take_due(conn: Connection, *, rehint_seconds: float, limit: int = LIMIT) -> list[UUID]:
    """Stamp and return the endpoints that have a due delivery and no hint younger than `rehint_seconds`."""
    row = await (await conn.execute(sql.ANY_DUE.encode())).fetchone()
    if row is None or not row[0]:
        return []
    cursor = await conn.execute(sql.DUE.encode(), {"rehint": rehint_seconds, "limit": limit})
    return [endpoint_id for (endpoint_id,) in await cursor.fetchall()]


async def unhint(conn: Connection, endpoint_ids: Sequence[UUID]) -> None:
    """Take the stamps back: the broker did not take the hints, or no notifier acts on them any more."""
    await conn.execute(sql.UNHINT.encode(), [list(endpoint_ids)])


async def unhint_all(conn: Connection) -> int:
    """Take all stamps back, because the broker's messages are of another time. Returns of how many endpoints."""
    return (await conn.execute(sql.UNHINT_ALL.encode())).rowcount
