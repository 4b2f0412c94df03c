"""Claims about a real notifier process on the default broker."""

import asyncio
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler

import psycopg
import pytest

from app.db.pool import Database
from app.settings import Settings
from app.tasks import names
from app.tasks.producer import Hints
from app.tasks.transport import Transport
from app.webhooks import due_sweep
from testing.waiting import wait_for
from tests.webhooks.support import (
    Script,
    answer,
    emit,
    notifying,
    receiving,
    statuses,
    subscribe,
    subscribe_and_emit,
    wait_for_value,
)
from workers.celery_shell.worker import THREADS

STATE = "select state from delivery"


def execute(settings: Settings, statement: str) -> None:
    with psycopg.connect(settings.database_url, autocommit=True) as conn:
        conn.execute(statement.encode())


def hang_once(end: threading.Event) -> Script:
    """Respond to the first request once `end` is set, and to later ones at once."""

    def script(handler: BaseHTTPRequestHandler, n: int) -> None:
        if n == 1:
            end.wait()
        answer(handler, 200)

    return script


def test_an_event_reaches_its_receiver_signed_and_sigterm_stops_cleanly(
    settings: Settings,
) -> None:
    with receiving() as receiver, notifying(settings) as notifier:
        start = time.monotonic()
        request_id, secret = asyncio.run(subscribe_and_emit(settings, receiver.url))
        (request,) = receiver.wait(1)
        body = request.verified(secret)
        assert body["type"] == "cf.workersAi.model.batch.succeeded"
        assert body["payload"]["requestId"] == request_id
        assert request.headers["content-type"] == "application/json"
        wait_for_value(settings.database_url, STATE, "delivered")
        print(f"subscribe + commit to receipt: {(request.at - start) * 1000:.0f} ms")
        assert notifier.stop() == 0
        assert len(receiver.requests) == 1
        assert "Traceback" not in notifier.log.read_text()


def test_a_lost_message_is_repaired_by_the_sweep(settings: Settings) -> None:
    with receiving() as receiver:

        async def hinted_and_lost() -> None:
            await subscribe_and_emit(settings, receiver.url)
            hints = Hints.of(settings, settings.database_url)
            async with Database.of(settings, "test") as database, database.durable() as conn:
                assert await hints.endpoints(await due_sweep.take_due(conn, rehint_seconds=60))
            await hints.close()

        asyncio.run(hinted_and_lost())
        execute(settings, f"select pgmq.purge_queue('{names.WEBHOOKS}')")
        with notifying(settings, webhook_rehint_seconds=1.0):
            receiver.wait(1)
            wait_for_value(settings.database_url, STATE, "delivered")
        assert len(receiver.requests) == 1


def test_broken_broker_tables_lose_no_delivery(settings: Settings) -> None:
    with receiving() as receiver, notifying(settings, webhook_rehint_seconds=1.0):
        execute(settings, f"select pgmq.drop_queue('{names.WEBHOOKS}')")
        wait_for_value(
            settings.database_url,
            f"select queue_name from pgmq.meta where queue_name = '{names.WEBHOOKS}'",
            names.WEBHOOKS,
        )
        asyncio.run(subscribe_and_emit(settings, receiver.url))
        receiver.wait(1)
        wait_for_value(settings.database_url, STATE, "delivered")


FULL_DISK = f"""
create function full_disk() returns trigger language plpgsql as $$
  begin raise exception 'no space left on device' using errcode = 'disk_full'; end $$;
create trigger full_disk before delete on pgmq.q_{names.WEBHOOKS} for each row execute function full_disk()"""


@pytest.mark.slow
def test_more_failed_acknowledgements_than_places_stop_no_delivery(settings: Settings) -> None:
    count = 4 * THREADS

    async def emit_to_many(url: str) -> None:
        async with Database.of(settings, "test") as database, database.transaction() as conn:
            for _ in range(count):
                await subscribe(conn, settings, url)
            await emit(conn, 1)

    with receiving() as receiver, notifying(settings) as notifier:
        execute(settings, FULL_DISK)
        asyncio.run(emit_to_many(receiver.url))
        receiver.wait(count)
        wait_for_value(settings.database_url, "select count(*) from delivery where state = 'delivered'", count)
        assert "Couldn't ack" in notifier.log.read_text(), "no acknowledgement failed"


@pytest.mark.slow
def test_a_message_that_comes_twice_is_delivered_once(settings: Settings) -> None:
    with receiving() as receiver, notifying(settings):
        asyncio.run(subscribe_and_emit(settings, receiver.url))
        receiver.wait(1)

        async def again() -> None:
            async with Database.of(settings, "test") as database, database.durable() as conn:
                row = await (await conn.execute("select endpoint_id from endpoint")).fetchone()
            assert row is not None
            hints = Hints.of(settings, settings.database_url)
            assert await hints.endpoints([row[0]] * 5)
            await hints.close()

        asyncio.run(again())
        wait_for_value(settings.database_url, f"select count(*) from pgmq.q_{names.WEBHOOKS}", 0)
        time.sleep(0.2)
        assert len(receiver.requests) == 1


def test_a_failed_attempt_is_repeated_with_the_same_id_and_a_410_disables(settings: Settings) -> None:
    with receiving(statuses(500, 200, 410)) as receiver, notifying(settings):
        _, secret = asyncio.run(subscribe_and_emit(settings, receiver.url))
        receiver.wait(1)
        wait_for_value(settings.database_url, "select count(*) from attempt", 1)
        assert len(receiver.requests) == 1, "the second attempt waits for its time"
        execute(settings, "update delivery set next_attempt_at = now()")
        first, second = receiver.wait(2)
        wait_for_value(settings.database_url, STATE, "delivered")
        assert first.webhook_id == second.webhook_id
        assert first.body == second.body
        assert second.verified(secret)

        execute(settings, "delete from delivery")
        execute(
            settings,
            "insert into delivery (event_id, endpoint_id, batch_id) select event_id, endpoint_id, batch_id from event, endpoint",
        )
        wait_for_value(settings.database_url, STATE, "dead")
        wait_for_value(settings.database_url, "select state from endpoint", "disabled")


def test_a_notifier_killed_during_a_delivery_loses_nothing(settings: Settings) -> None:
    end = threading.Event()
    with receiving(hang_once(end)) as receiver:
        with notifying(settings, webhook_timeout_seconds=1.5) as notifier:
            _, secret = asyncio.run(subscribe_and_emit(settings, receiver.url))
            receiver.wait(1)
            notifier.process.send_signal(signal.SIGKILL)
            notifier.process.wait()
        wait_for_value(settings.database_url, STATE, "sending")
        with notifying(settings, webhook_timeout_seconds=1.5):
            first, second = receiver.wait(2)
            wait_for_value(settings.database_url, STATE, "delivered")
        end.set()
        assert first.webhook_id == second.webhook_id
        assert second.verified(secret)
        wait_for_value(settings.database_url, "select attempts from delivery", 2)


@pytest.mark.slow
def test_sigterm_lets_a_running_delivery_finish(settings: Settings) -> None:
    end = threading.Event()
    with receiving(hang_once(end)) as receiver, notifying(settings) as notifier:
        asyncio.run(subscribe_and_emit(settings, receiver.url))
        receiver.wait(1)
        threading.Timer(0.2, end.set).start()
        assert notifier.stop() == 0
        wait_for_value(settings.database_url, STATE, "delivered")
        assert len(receiver.requests) == 1
        wait_for_value(settings.database_url, f"select count(*) from pgmq.q_{names.WEBHOOKS}", 0)


@pytest.mark.slow
def test_two_notifiers_that_start_on_an_empty_broker_deliver_each_event_once(settings: Settings) -> None:
    async def many(url: str) -> None:
        async with Database.of(settings, "test") as database, database.transaction() as conn:
            await subscribe(conn, settings, url)
            for batch_id in range(60):
                await emit(conn, batch_id)

    with receiving() as receiver:
        asyncio.run(many(receiver.url))
        with ExitStack() as both, ThreadPoolExecutor(2) as starters:
            list(starters.map(lambda _: both.enter_context(notifying(settings)), range(2)))
            receiver.wait(60)
            wait_for_value(settings.database_url, "select count(*) from delivery where state = 'delivered'", 60)
        assert len({request.webhook_id for request in receiver.requests}) == len(receiver.requests) == 60


RUN_WITH_SHORT_VISIBILITY = """
import os, time
from app import settings
from app.tasks import broker
from workers.notifier import __main__, async_bridge
broker.VISIBILITY_SECONDS = 4
deliver = async_bridge.AsyncBridge.deliver
def slow(*arguments):
    while not os.path.exists(settings.load().data_dir / "go on"):
        time.sleep(0.01)
    deliver(*arguments)
async_bridge.AsyncBridge.deliver = slow
raise SystemExit(__main__.main())
"""


@pytest.mark.slow
def test_the_message_of_a_running_task_stays_invisible_beyond_its_timeout(settings: Settings) -> None:
    command = [sys.executable, "-c", RUN_WITH_SHORT_VISIBILITY]
    with receiving() as receiver, notifying(settings, command=command):
        asyncio.run(subscribe_and_emit(settings, receiver.url))
        wait_for_value(settings.database_url, f"select count(*) from pgmq.q_{names.WEBHOOKS} where read_ct = 1", 1)
        with psycopg.connect(settings.database_url, autocommit=True) as conn:
            # A slow machine may send a second hint meanwhile.
            first = f"from pgmq.q_{names.WEBHOOKS} order by msg_id limit 1"
            row = conn.execute(f"select vt {first}".encode()).fetchone()
            over = "select now() > %s"
            wait_for(lambda: conn.execute(over, row).fetchone() == (True,), "the end of its first timeout")
            assert conn.execute(f"select read_ct, vt > now() {first}".encode()).fetchone() == (1, True)
        (settings.data_dir / "go on").touch()
        wait_for_value(settings.database_url, STATE, "delivered")
        assert len(receiver.requests) == 1


def test_a_transaction_that_the_server_ended_is_a_lost_connection(settings: Settings) -> None:
    with psycopg.connect(settings.database_url) as conn:
        conn.execute("set idle_in_transaction_session_timeout = '1ms'")
        with pytest.raises(Transport.connection_errors):
            for _ in range(1000):
                conn.execute("select 1")
                time.sleep(0.01)
    assert issubclass(psycopg.errors.IdleInTransactionSessionTimeout, Transport.connection_errors)
