"""Claims about a notifier during a restart of its database, which is also its broker."""

import asyncio
import threading
import time
from http.server import BaseHTTPRequestHandler

import pytest
from pydantic import SecretStr

from app.db import embedded
from app.settings import Settings
from tests.webhooks.support import answer, notifying, receiving, subscribe_and_emit, wait_for_value


@pytest.fixture
def own_server(stoppable_server: Settings) -> Settings:
    """An embedded server that may be stopped."""
    changes = {"secret_key": SecretStr("k" * 32), "webhook_allow_private": "loopback"}
    return stoppable_server.model_copy(update=changes)


def test_an_immediate_stop_of_postgres_is_survived(own_server: Settings) -> None:
    delivered = "select count(*) from delivery where state = 'delivered'"
    with receiving() as receiver, notifying(own_server) as notifier:
        asyncio.run(subscribe_and_emit(own_server, receiver.url, 1))
        receiver.wait(1)
        wait_for_value(own_server.database_url, delivered, 1)
        embedded.stop(own_server, "immediate")
        embedded.start(own_server)
        asyncio.run(
            subscribe_and_emit(own_server, receiver.url, 2)
        )  # one event for the first endpoint and for a second one
        receiver.wait(3)
        wait_for_value(own_server.database_url, delivered, 3)
        assert notifier.process.poll() is None
        assert notifier.stop() == 0


def test_an_outcome_is_recorded_when_the_database_restarts_during_the_post(own_server: Settings) -> None:
    back, answered = threading.Event(), threading.Event()

    def slow(handler: BaseHTTPRequestHandler, _: int) -> None:
        back.wait()
        answer(handler, 200)
        answered.set()

    with receiving(slow) as receiver, notifying(own_server):
        asyncio.run(subscribe_and_emit(own_server, receiver.url))
        receiver.wait(1)
        embedded.stop(own_server, "immediate")
        back.set()
        answered.wait()
        time.sleep(0.2)  # in which the notifier reads the answer, and finds the database down
        embedded.start(own_server)
        wait_for_value(own_server.database_url, "select state from delivery", "delivered")
        wait_for_value(own_server.database_url, "select attempts from delivery", 1)
        assert len(receiver.requests) == 1
