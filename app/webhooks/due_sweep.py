"""The round that makes every due delivery known: hosted by the steward and by every notifier; one more never harms."""

from typing import Protocol
from uuid import UUID

from app.db.pool import Database
from app.settings import Settings
from app.webhooks import service

LIMIT = 500


class HintPublisher(Protocol):
    """Who tells the broker: `app.tasks.producer.Hints`."""

    async def endpoints(self, endpoint_ids: list[UUID]) -> bool:
        """Publish one hint each; False when the broker did not take them."""


async def sweep(database: Database, hints: HintPublisher, settings: Settings) -> int:
    """End expired leases, then hint at which endpoints something is due. Returns how many hints were published.

    The stamps are committed before the broker is asked, so two sweepers do not hint the same endpoint; where the
    broker refuses, they are taken back, and where this process dies in between, `webhook_rehint_seconds` heals it.
    """
    async with database.relaxed() as conn:
        await service.reap(conn)
        due = await service.due(conn, rehint_seconds=settings.webhook_rehint_seconds, limit=LIMIT)
    if not due:
        return 0
    if await hints.endpoints(due):
        return len(due)
    async with database.relaxed() as conn:
        await service.unhint(conn, due)
    return 0
