"""The check that every broker has to pass."""

import asyncio
from typing import Any

from app.settings import Settings
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
