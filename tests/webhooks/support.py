"""Helpers: a scriptable receiver, subscriptions, events, and real notifier processes."""

import base64
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from standardwebhooks import Webhook

from app import crypto
from app.audit.checkpoints import fits
from app.db.pool import Connection, Database
from app.events import USUAL_KINDS, BatchData, EventKind
from app.settings import Settings
from app.states import EndpointState
from app.webhooks import emitter, registration, url_check
from app.webhooks.egress import Egress
from app.webhooks.endpoints import Endpoint, EventFilter
from testing.waiting import LIMIT_SECONDS, wait_for
from workers.notifier.delivery import Sender

ACCOUNT = "f9f79265f388666de8122cfb508d7776"
NOTIFIER = (sys.executable, "-m", "workers.notifier")
MODEL = "@cf/meta/llama-3.1-8b-instruct"


@dataclass(frozen=True)
class Received:
    """One request as it arrived."""

    at: float
    headers: dict[str, str]
    body: bytes
    target: str = ""

    def verified(self, secret: str) -> dict[str, Any]:
        """The body, if the signature is right."""
        return Webhook(secret).verify(self.body, self.headers)  # type: ignore[no-any-return]

    def is_signed_by(self, public_key: str) -> bool:
        """Whether one of its `v1a` signatures is by this key."""
        key = base64.b64decode(public_key.removeprefix("whpk_"))
        signed = f"{self.webhook_id}.{self.headers['webhook-timestamp']}.".encode() + self.body
        signatures = [each for each in self.headers["webhook-signature"].split(" ") if each.startswith("v1a,")]
        return any(fits(key, signed, base64.b64decode(each.removeprefix("v1a,"))) for each in signatures)

    @property
    def webhook_id(self) -> str:
        return self.headers["webhook-id"]


Script = Callable[[BaseHTTPRequestHandler, int], None]


@dataclass
class Receiver:
    """An HTTP receiver on a loopback port; `script` answers request number n (from 1)."""

    port: int
    requests: list[Received] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def wait(self, count: int) -> list[Received]:
        """Wait until `count` requests have arrived."""
        wait_for(lambda: len(self.requests) >= count, f"{count} requests")
        return list(self.requests)


def answer(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    """Send a response with this status and body."""
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def statuses(*codes: int) -> Script:
    """Respond with these statuses in turn. The last one repeats."""
    return lambda handler, n: answer(handler, codes[min(n, len(codes)) - 1])


@contextmanager
def receiving(script: Script = statuses(200)) -> Iterator[Receiver]:  # noqa: B008
    """A running receiver."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.requests.append(Received(time.monotonic(), headers, body, self.path))
            with suppress(OSError):  # in some tests the client closes the connection
                script(self, len(receiver.requests))

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256  # with the five of the default, the kernel drops some of many connections at once

    with Server(("127.0.0.1", 0), Handler) as server:
        receiver = Receiver(server.server_port)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield receiver
        server.shutdown()


async def make_tenant(conn: Connection, tenant_id: int = 1) -> int:
    """Create a tenant if it does not exist."""
    await conn.execute(
        "insert into tenant (tenant_id, account_id, name) values (%s, %s, 'test') on conflict do nothing",
        [tenant_id, ACCOUNT if tenant_id == 1 else str(tenant_id)],
    )
    return tenant_id


async def subscribe(conn: Connection, settings: Settings, url: str, **options: Any) -> tuple[Endpoint, str]:
    """Register an active endpoint of tenant 1 (or `tenant_id`). Returns it and its secret."""
    tenant_id = await make_tenant(conn, options.pop("tenant_id", 1))
    account_id = ACCOUNT if tenant_id == 1 else str(tenant_id)
    usual = {"name": "test", "kinds": list(USUAL_KINDS), "state": EndpointState.ACTIVE}
    of = EventFilter(
        *(options.pop(name, default) for name, default in (("model", None), ("tags", ()), ("metadata", {})))
    )
    values = usual | {"account_id": account_id, "of": of} | options
    async with Egress.of(settings) as egress:
        checked = await url_check.checked_url(egress, url)
    key = crypto.secret_key(settings)
    endpoint, keys = await registration.create(conn, key=key, tenant_id=tenant_id, url=checked, **values)
    return endpoint, keys.secret


async def emit(conn: Connection, batch_id: int | None, kind: str = "batch.succeeded", **options: Any) -> str:
    """Emit one event; returns its request_id."""
    request_id = str(uuid4())
    values = {"tenant_id": 1, "model": MODEL, "run": 1} | options
    data = BatchData(request_id=request_id, account_id=ACCOUNT)
    await emitter.emit(conn, kind=EventKind(kind), batch_id=batch_id, data=data, **values)
    return request_id


async def send_due(sender: Sender, database: Database) -> None:
    """Send all due deliveries of every endpoint, as a notifier does."""
    async with database.durable() as conn:
        rows = await (
            await conn.execute("select distinct endpoint_id from delivery where state = 'pending'")
        ).fetchall()
    for (endpoint_id,) in rows:
        sender.kick(endpoint_id)
    await sender.idle()


async def subscribe_and_emit(settings: Settings, url: str, batch_id: int = 1) -> tuple[str, str]:
    """Subscribe `url` and emit one event. Returns the request_id and the signing secret."""
    async with Database.of(settings, "test") as database, database.transaction() as conn:
        _, secret = await subscribe(conn, settings, url)
        return await emit(conn, batch_id), secret


def wait_for_value(database_url: str, query: str, expected: Any) -> None:
    """Wait until the first column of the first row is `expected`."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        wait_for(
            lambda: conn.execute(query.encode()).fetchone(),
            f"{query} is {expected!r}",
            until=lambda row: row == (expected,),
        )


@dataclass
class Notifier:
    """A `python -m workers.notifier` process and its log."""

    process: subprocess.Popen[bytes]
    log: Path

    def wait_ready(self) -> None:
        """Wait until it consumes."""

        def consumes() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return "notifier.consuming" in self.log.read_text()

        wait_for(consumes, f"the notifier consumes; see {self.log}")

    def stop(self) -> int:
        """Send SIGTERM. Returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT_SECONDS)


@contextmanager
def notifying(settings: Settings, command: Sequence[str] = NOTIFIER, **overrides: Any) -> Iterator[Notifier]:
    """A notifier process that consumes from the broker of the settings. It is killed at the end if it still runs."""
    values = {
        "data_dir": settings.data_dir,
        "database_url": settings.database_url,
        "broker_url": settings.broker_url,
        "secret_key": settings.secret_key.get_secret_value(),
        "webhook_allow_private": "loopback",
        "notifier_metrics_port": 0,
        "webhook_sweep_seconds": 0.1,
        "webhook_concurrency": 8,
        "database_pool_size": 4,
    } | overrides
    environment = {f"SLACKWATER_{name.upper()}": str(value) for name, value in values.items()}
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    log = settings.data_dir / f"notifier-{uuid4().hex[:8]}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=os.environ | environment, stdout=out, stderr=out)
    notifier = Notifier(process, log)
    try:
        notifier.wait_ready()
        yield notifier
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        print(log.read_text()[-4000:])


def guarded(**options: Any) -> Egress:
    return Egress(**{"allow_private": "off", "timeout_seconds": 5, "response_bytes": 1000} | options)
