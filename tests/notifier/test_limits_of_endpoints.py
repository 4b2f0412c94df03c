"""Claims about the limits of an endpoint with several real notifiers."""

import asyncio
import signal
import threading
from http.server import BaseHTTPRequestHandler
from uuid import UUID

import psycopg

from app.db.pool import Database
from app.settings import Settings
from app.tasks.producer import Hints
from app.webhooks.validation import DeliveryLimits
from testing.waiting import LIMIT_SECONDS
from tests.webhooks.support import answer, emit, notifying, receiving, subscribe, wait_for_value

MOST = 3


async def _subscribed(settings: Settings, url: str, events: int) -> UUID:
    async with Database.of(settings, "test") as database, database.transaction() as conn:
        endpoint, _ = await subscribe(conn, settings, url, limits=DeliveryLimits(max_in_flight=MOST))
        for batch_id in range(events):
            await emit(conn, batch_id)
    return endpoint.endpoint_id


async def _hint(settings: Settings, endpoint_id: UUID) -> None:
    hints = Hints.of(settings, settings.database_url)
    assert await hints.endpoints([endpoint_id])
    await hints.close()


def test_an_endpoint_that_one_notifier_keeps_busy_gets_nothing_from_another(settings: Settings) -> None:
    going_on, in_flight, peak, lock = threading.Event(), 0, 0, threading.Lock()

    def held(handler: BaseHTTPRequestHandler, _: int) -> None:
        nonlocal in_flight, peak
        with lock:
            in_flight += 1
            peak = max(peak, in_flight)
        going_on.wait(LIMIT_SECONDS)
        with lock:
            in_flight -= 1
        answer(handler, 200)

    with receiving(held) as receiver, notifying(settings) as busy:
        endpoint_id = asyncio.run(_subscribed(settings, receiver.url, 12))
        receiver.wait(MOST)
        busy.process.send_signal(signal.SIGSTOP)  # the next hint is the other one's
        with notifying(settings):
            with psycopg.connect(settings.database_url, autocommit=True) as conn:
                conn.execute("update endpoint set hinted_at = now()")
            asyncio.run(_hint(settings, endpoint_id))
            wait_for_value(settings.database_url, "select hinted_at is null from endpoint", True)  # it has looked
            assert len(receiver.requests) == MOST
            busy.process.send_signal(signal.SIGCONT)
            going_on.set()
            wait_for_value(settings.database_url, "select count(*) from delivery where state = 'delivered'", 12)
    assert (len(receiver.requests), peak) == (12, MOST)
