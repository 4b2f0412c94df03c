"""Claims about the metrics page of a notifier."""

import asyncio

import httpx
import psycopg

from app import processes
from app.settings import Settings
from testing.waiting import wait_for
from tests.webhooks.support import notifying, receiving, statuses, subscribe_and_emit, wait_for_value


def eventually(text: str, port: int) -> str:
    """Wait until the page contains this text. Returns the page."""
    return str(
        wait_for(lambda: text in (page := httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text) and page)
    )


def test_attempts_are_counted_by_their_outcome(settings: Settings) -> None:
    port = processes.free_port()
    with receiving(statuses(500, 204)) as receiver:
        asyncio.run(subscribe_and_emit(settings, receiver.url))
        with notifying(settings, notifier_metrics_port=port):
            wait_for_value(settings.database_url, "select state = 'pending' and attempts = 1 from delivery", True)
            page = eventually('slackwater_notifier_attempts_total{outcome="retry"} 1.0', port)
    assert "slackwater_notifier_attempt_seconds_count 1.0" in page
    assert "slackwater_notifier_in_flight 0.0" in page
    assert (
        'outcome="give_up"} 0.0' in page
    )  # an alert on its increase would miss the first one of a series that appears with it


def test_the_delay_is_from_when_a_delivery_was_due_and_a_failing_receiver_does_not_count(settings: Settings) -> None:
    port = processes.free_port()
    with receiving(statuses(500, 204)) as receiver:
        asyncio.run(subscribe_and_emit(settings, receiver.url))
        with psycopg.connect(settings.database_url, autocommit=True) as conn:
            conn.execute("update delivery set next_attempt_at = now() - interval '100 s'")
        with notifying(settings, notifier_metrics_port=port):
            wait_for_value(settings.database_url, "select state = 'pending' and attempts = 1 from delivery", True)
            eventually('slackwater_notifier_delay_seconds_bucket{le="60.0"} 0.0', port)
            page = eventually("slackwater_notifier_delay_seconds_count 1.0", port)
            assert 'slackwater_notifier_delay_seconds_bucket{le="120.0"} 1.0' in page
            with psycopg.connect(settings.database_url, autocommit=True) as conn:
                conn.execute("update delivery set next_attempt_at = now()")
            page = eventually('slackwater_notifier_attempts_total{outcome="deliver"} 1.0', port)
    assert "slackwater_notifier_delay_seconds_count 1.0" in page
