"""The checks that every broker has to pass."""

import asyncio
from typing import Any

from app.db.pool import Database
from app.settings import Settings
from testing.waiting import eventually
from tests.maintenance.support import asked, hinted, maintaining, read
from tests.webhooks.support import notifying, receiving, statuses, subscribe_and_emit, wait_for_value


def delivers(settings: Settings, **overrides: Any) -> None:
    """An event is refused, retried, delivered once and verified. The notifier then stops cleanly."""
    with receiving(statuses(500, 200)) as receiver, notifying(settings, **overrides) as notifier:
        request_id, secret = asyncio.run(subscribe_and_emit(settings, receiver.url))
        receiver.wait(1)
        wait_for_value(settings.database_url, "select state from delivery", "pending")
        wait_for_value(
            settings.database_url, "with due as (update delivery set next_attempt_at = now() returning 1) select 1", 1
        )
        first, second = receiver.wait(2)
        wait_for_value(settings.database_url, "select state from delivery", "delivered")
        assert first.webhook_id == second.webhook_id
        assert second.verified(secret)["payload"]["requestId"] == request_id
        assert notifier.stop() == 0
        assert len(receiver.requests) == 2


def maintains(settings: Settings) -> None:
    """Every duty that is asked for is done, and the worker stops cleanly."""

    async def ask() -> None:
        async with Database.of(settings, "test") as database:
            await hinted(settings, await asked(database))
            await eventually(lambda: read(database), until=lambda found: all(d.succeeded_at for d in found.values()))

    with maintaining(settings) as worker:
        asyncio.run(ask())
        assert worker.stop() == 0
