"""Claims about how often a notifier on the default broker looks for messages."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import kombu
import pytest

from app.settings import Settings
from app.tasks import broker, names, transport
from app.tasks.producer import Hints


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(transport, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    reads, real = list[str](), transport.Channel._receive_messages

    def read(channel: Any, queue: str, *given: Any, **how: Any) -> list[Any]:
        reads.append(queue)
        return real(channel, queue, *given, **how)

    monkeypatch.setattr(transport.Channel, "_receive_messages", read)
    return reads


@pytest.fixture
def consuming(settings: Settings) -> Iterator[tuple[kombu.Connection, list[Any]]]:
    app, got = broker.celery_app(settings, settings.database_url), list[Any]()

    def take(body: Any, message: kombu.Message) -> None:
        got.append(body)
        message.ack()

    with app.connection_for_read() as connection:
        queues = [kombu.Queue(names.WEBHOOKS)]
        with kombu.Consumer(connection.default_channel, queues=queues, callbacks=[take], accept=["json"]):
            yield connection, got
    app.close()


def drain(connection: kombu.Connection) -> bool:
    try:
        connection.drain_events(timeout=0.5)
    except TimeoutError:
        return False
    return True


def test_a_notifier_without_messages_looks_once_a_second(
    consuming: tuple[kombu.Connection, list[Any]], reads: list[str], now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(waiter: Any, seconds: float) -> bool:
        now[0] += seconds
        return False

    monkeypatch.setattr(transport._Waiter, "wait", wait)
    while now[0] < 1010:
        assert not drain(consuming[0])
    assert len(reads) <= 11


async def test_a_message_is_read_at_once_and_so_are_those_behind_it(
    settings: Settings, consuming: tuple[kombu.Connection, list[Any]], reads: list[str], now: list[float]
) -> None:
    connection, got = consuming
    assert not drain(connection)
    assert not drain(connection)
    assert len(reads) == 1  # no time has passed
    hints = Hints.of(settings, settings.database_url)
    assert await hints.endpoints([uuid4() for _ in range(30)])
    for _ in range(100):  # a notification may come late
        drain(connection)
        if len(got) == 30:
            break
    assert len(got) == 30
    await hints.close()
