"""A receiver, subscriptions and events, and the processes that deliver them."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from time import monotonic, sleep, time
from uuid import uuid4

from app import crypto
from app.db.pool import Connection, Database
from app.environment import child_environment
from app.events import BatchData, Counts, EventKind
from app.settings import Settings
from app.states import EndpointState
from app.tenants import service as tenants
from app.webhooks import emitter, registration
from app.webhooks.url_check import CheckedUrl
from benchmarks.gateway.installation import running
from benchmarks.harness import ACCOUNT, MODEL, ROOT, Testbed, end, part

KIND = EventKind.BATCH_SUCCEEDED
Receipt = tuple[str, str, float]


@dataclass(frozen=True)
class ReceiverProcess:
    """The receiver process."""

    port: int

    def url(self, path: str) -> str:
        """The URL of a subscription with this path."""
        return f"http://127.0.0.1:{self.port}{path}"

    def came(self) -> list[Receipt]:
        """(path, webhook-id, time) of each receipt since the last call."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", "/report")
        found = json.loads(connection.getresponse().read())
        connection.close()
        return [(path, webhook_id, at) for path, webhook_id, at in found]

    def until(self, count: int, seconds: float) -> list[Receipt]:
        """Receipts, once there are `count` of them or `seconds` have passed."""
        found, deadline = self.came(), monotonic() + seconds
        while len(found) < count and monotonic() < deadline:
            sleep(0.05)
            found += self.came()
        return found


@contextlib.contextmanager
def receiver_process() -> Iterator[ReceiverProcess]:
    """Run a receiver until the block ends."""
    with running([sys.executable, "-m", "benchmarks.webhooks.receiver"]) as process:
        assert process.stdout
        yield ReceiverProcess(int(process.stdout.readline()))


@contextlib.contextmanager
def delivering(testbed: Testbed) -> Iterator[Settings]:
    """Run a steward and a notifier on a fresh database. Receivers on this machine are allowed."""
    settings = testbed.settings(testbed.database(), webhook_allow_private="loopback")
    with part(settings, "workers.steward"), part(settings, "workers.notifier"):
        sleep(4)  # Celery's start
        yield settings


async def subscribe(database: Database, settings: Settings, urls: Sequence[str]) -> int:
    """One subscription for each URL, of one account. Returns its tenant."""
    async with database.transaction() as conn:
        tenant_id = await tenants.ensure_tenant(conn, ACCOUNT)
        for number, url in enumerate(urls):
            await registration.create(
                conn,
                key=crypto.secret_key(settings),
                tenant_id=tenant_id,
                account_id=ACCOUNT,
                state=EndpointState.ACTIVE,
                name=f"receiver {number}",
                url=CheckedUrl(url),
                kinds=[KIND],
            )
    return tenant_id


async def emit(conn: Connection, tenant_id: int, batch_id: int) -> None:
    """An event as the steward writes it at the end of a batch."""
    data = BatchData(request_id=str(uuid4()), account_id=ACCOUNT, counts=Counts.of(total=10, succeeded=10, failed=0))
    await emitter.emit(conn, tenant_id=tenant_id, kind=KIND, model=MODEL, batch_id=batch_id, run=1, data=data)


def prepare(settings: Settings, urls: Sequence[str]) -> int:
    """A subscription for each URL, and an event for them. Returns their tenant."""

    async def write() -> int:
        async with Database.of(settings, "benchmark") as database:
            tenant_id = await subscribe(database, settings, urls)
            async with database.transaction() as conn:
                await emit(conn, tenant_id, -1)
            return tenant_id

    return asyncio.run(write())


def burst(settings: Settings, tenant_id: int, events: int) -> float:
    """Write `events` events in one transaction. Returns the time of its commit."""

    async def write() -> float:
        async with Database.of(settings, "benchmark") as database:
            async with database.transaction() as conn:
                for batch_id in range(events):
                    await emit(conn, tenant_id, batch_id)
            return time()

    return asyncio.run(write())


def stream(settings: Settings, urls: Sequence[str], rate: float, seconds: float) -> dict[str, float]:
    """Write events at a steady rate, for each URL in turn. Returns the time of each commit by webhook-id."""

    async def write() -> dict[str, float]:
        committed: dict[str, float] = {}
        async with Database.of(settings, "benchmark") as database:
            tenant_ids = [await subscribe_one(database, settings, number, url) for number, url in enumerate(urls)]
            async with database.durable() as conn:
                began = monotonic()
                for number in range(int(rate * seconds)):
                    await asyncio.sleep(max(0.0, began + number / rate - monotonic()))
                    async with conn.transaction():
                        await emit(conn, tenant_ids[number % len(urls)], number)
                    committed[await _webhook_id(conn, number)] = time()
        return committed

    return asyncio.run(write())


async def subscribe_one(database: Database, settings: Settings, number: int, url: str) -> int:
    """A subscription of an account of its own."""
    async with database.transaction() as conn:
        tenant_id = await tenants.ensure_tenant(conn, f"{ACCOUNT}-{number}")
        key = crypto.secret_key(settings)
        checked = CheckedUrl(url)
        await registration.create(
            conn,
            key=key,
            tenant_id=tenant_id,
            account_id=f"{ACCOUNT}-{number}",
            name="receiver",
            state=EndpointState.ACTIVE,
            url=checked,
            kinds=[KIND],
        )
    return tenant_id


async def _webhook_id(conn: Connection, batch_id: int) -> str:
    row = await (await conn.execute("select message_id from event where batch_id = %s", [batch_id])).fetchone()
    assert row is not None
    return f"evt_{row[0].hex}"


@contextlib.contextmanager
def plain_celery(settings: Settings) -> Iterator[subprocess.Popen[bytes]]:
    """Run the worker of `plain_celery` until the block ends."""
    command = [sys.executable, "-m", "benchmarks.webhooks.plain_celery", "work"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(  # type: ignore[call-overload]
        command, env=child_environment(settings, {}), cwd=ROOT, start_new_session=True, **quiet
    )
    try:
        yield process
    finally:
        end(process)


def publish(settings: Settings, messages: Sequence[tuple[str, str, str]]) -> None:
    """Send the messages to the broker of `plain_celery`."""
    command = [sys.executable, "-m", "benchmarks.webhooks.plain_celery", "publish"]
    environment = child_environment(settings, {})
    subprocess.run(command, input=json.dumps(messages).encode(), env=environment, cwd=ROOT, check=True, timeout=120)
