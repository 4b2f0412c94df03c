"""Under faults of receivers, processes and brokers, every event is delivered or visibly dead.

None is sent again after a 2xx was recorded.
"""

import asyncio
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler

import psycopg
import pytest

from app.db.pool import Database
from app.settings import Settings
from app.tasks import names
from testing.waiting import wait_for
from tests.timing import note
from tests.webhooks.support import Script, answer, emit, notifying, receiving, statuses, subscribe

pytestmark = pytest.mark.slow

EVENTS = 2
ROUNDS = 3  # of kills


def drip(handler: BaseHTTPRequestHandler, n: int) -> None:
    """Send single bytes for longer than an attempt may take. Later requests get a response."""
    if n > EVENTS:
        return answer(handler, 200)
    handler.send_response(200)
    handler.end_headers()
    for _ in range(40):
        handler.wfile.write(b".")
        time.sleep(0.1)
    return None


def hang(handler: BaseHTTPRequestHandler, n: int) -> None:
    """Never respond to the first requests."""
    if n > EVENTS:
        return answer(handler, 200)
    threading.Event().wait()
    return None


def redirect(handler: BaseHTTPRequestHandler, n: int) -> None:
    """Redirect to a forbidden address."""
    answer(handler, 302, location="http://169.254.169.254/latest/meta-data/")


def busy(handler: BaseHTTPRequestHandler, n: int) -> None:
    """Respond with 429 and `Retry-After`."""
    answer(handler, 429 if n <= EVENTS else 200, retry_after="1")


def huge(handler: BaseHTTPRequestHandler, n: int) -> None:
    """Respond with 50 MB."""
    handler.send_response(200)
    handler.end_headers()
    for _ in range(50):
        handler.wfile.write(b"x" * 2**20)


RECEIVERS: dict[str, Script] = {
    "ready": statuses(200),
    "broken at first": statuses(500, 503, 200),
    "dripping": drip,
    "hanging": hang,
    "redirecting": redirect,
    "gone": statuses(410),
    "busy": busy,
    "talkative": huge,
}
ENDS = {
    "redirecting": {"dead"},
    "gone": {"dead", "held"},
    "down": {"dead"},
    "bad tls": {"dead"},
}  # the others: delivered


@contextmanager
def bad_tls() -> Iterator[int]:
    """A port without TLS, although its URL is https."""

    def speak(server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                peer, _ = server.accept()
                with peer, suppress(OSError):
                    peer.sendall(b"220 good morning\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=speak, args=(server,), daemon=True).start()
        yield server.getsockname()[1]


@contextmanager
def time_passes(settings: Settings) -> Iterator[None]:
    """Make deliveries due at once that would wait for minutes or hours."""
    over = threading.Event()

    def pass_on() -> None:
        with psycopg.connect(settings.database_url, autocommit=True) as conn:
            while not over.wait(0.2):
                conn.execute(
                    "update delivery set next_attempt_at = now() where state = 'pending' and next_attempt_at > now()"
                )
                conn.execute("update endpoint set open_until = now() where open_until > now()")

    thread = threading.Thread(target=pass_on, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join()


def purge(settings: Settings) -> None:
    """Delete the messages on the default broker."""
    with psycopg.connect(settings.database_url, autocommit=True) as conn:
        conn.execute(f"select pgmq.purge_queue('{names.WEBHOOKS}')".encode())


@pytest.mark.parametrize("broker", ["pgmq", "rabbitmq"])
def test_every_event_is_delivered_or_visibly_dead_and_nothing_comes_after_a_recorded_2xx(
    settings: Settings, broker: str, request: pytest.FixtureRequest
) -> None:
    overrides = {"webhook_timeout_seconds": 1.5, "webhook_rehint_seconds": 1.0}
    if broker == "rabbitmq":
        overrides["broker_url"] = request.getfixturevalue("rabbitmq_url")
    rng = random.Random(7)
    with ExitStack() as stack:
        receivers = {name: stack.enter_context(receiving(script)) for name, script in RECEIVERS.items()}
        urls = {name: receiver.url for name, receiver in receivers.items()}
        urls |= {
            "down": "http://127.0.0.1:9/hook",
            "bad tls": f"https://127.0.0.1:{stack.enter_context(bad_tls())}/hook",
        }
        asyncio.run(_write(settings, urls))
        stack.enter_context(time_passes(settings))
        for _ in range(ROUNDS):
            with notifying(settings, **overrides) as notifier:
                time.sleep(rng.uniform(0.2, 2.0))
                notifier.process.kill()
                notifier.process.wait()
            if broker == "pgmq":
                purge(settings)
        with notifying(settings, **overrides) as notifier:
            rows = _until_final(settings)
            assert notifier.stop() == 0
    ends = {name: {state for of, state, _ in rows if of == name} for name in urls}
    assert all(states <= ENDS.get(name, {"delivered"}) for name, states in ends.items()), ends
    assert all(accepted == (1 if state == "delivered" else 0) for _, state, accepted in rows)
    came = Counter(r.webhook_id for receiver in receivers.values() for r in receiver.requests)
    note(f"fault matrix on {broker}: {len(rows)} deliveries, 0 lost, {ROUNDS} kills, {came.total()} requests")


async def _write(settings: Settings, urls: dict[str, str]) -> None:
    async with Database.of(settings, "test") as database, database.transaction() as conn:
        for name, url in urls.items():
            await subscribe(conn, settings, url, name=name)
        for batch_id in range(EVENTS):
            await emit(conn, batch_id)


def _until_final(settings: Settings) -> list[tuple[str, str, int]]:
    """(endpoint, state, attempts with a 2xx) of each delivery, once all are final."""
    asked = (
        "select e.name, d.state, count(a.*) filter (where a.error_class is null and a.attempt_id is not null)::int"
        " from delivery d join endpoint e using (endpoint_id) left join attempt a using (delivery_id)"
        " group by d.delivery_id, e.name, d.state"
    )
    with psycopg.connect(settings.database_url, autocommit=True) as conn:
        return wait_for(
            lambda: conn.execute(asked).fetchall(),
            "every delivery final",
            until=lambda rows: all(state in ("delivered", "dead", "held") for _, state, _ in rows),
        )
