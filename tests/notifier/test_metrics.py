"""Claims about the metrics page of a notifier."""

import asyncio

import httpx

from app import processes
from app.settings import Settings
from tests.system.stack import wait_for as wait
from tests.webhooks.support import notifying, receiving, statuses, subscribe_and_emit, wait_for


def eventually(text: str, port: int) -> str:
    """Wait until the page contains this text. Returns the page."""
    return str(
        wait(lambda: text in (page := httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text) and page)
    )


def test_attempts_are_counted_by_their_outcome(settings: Settings) -> None:
    port = processes.free_port()
    with receiving(statuses(500, 204)) as receiver:
        asyncio.run(subscribe_and_emit(settings, receiver.url))
        with notifying(settings, notifier_metrics_port=port):
            wait_for(settings.database_url, "select state = 'pending' and attempts = 1 from delivery", True)
            page = eventually('slackwater_notifier_attempts_total{outcome="retry"} 1.0', port)
    assert "slackwater_notifier_attempt_seconds_count 1.0" in page
    assert "slackwater_notifier_in_flight 0.0" in page
