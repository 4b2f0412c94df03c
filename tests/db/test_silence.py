"""Claims about a database host that vanishes without a word: each connection by TCP notices it within a lease."""

import socket
import sys
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import conninfo, pq

from app.db import embedded, migrate
from app.db.keepalive import LEAST_SECONDS, noticed
from app.db.pool import Database
from app.settings import Settings
from app.tasks import broker
from tests.needs import only

URL = "postgresql://user:secret@db.example.com:5432/slackwater"
linux = only(sys.platform == "linux", "the names of these options are Linux's")


@pytest.mark.parametrize("lease", [0.3, 2.0, 10.0, 60.0])
@pytest.mark.parametrize("url", [URL, f"{URL}?sslmode=require"])
def test_what_is_sent_and_who_only_listens_give_up_within_a_lease(url: str, lease: float) -> None:
    found, before = conninfo.conninfo_to_dict(noticed(url, lease)), conninfo.conninfo_to_dict(url)
    assert found.items() >= before.items()
    seconds = max(lease, LEAST_SECONDS)
    assert int(found["tcp_user_timeout"]) == 1000 * seconds  # type: ignore[arg-type]
    assert found["keepalives"] == "1"
    assert 1 <= int(found["keepalives_idle"]) < seconds  # type: ignore[arg-type]
    assert int(found["keepalives_interval"]) >= 1  # type: ignore[arg-type]


def test_what_the_operators_url_says_stays() -> None:
    own = f"{URL}?tcp_user_timeout=0&keepalives=0&keepalives_idle=7&keepalives_interval=8&keepalives_count=9&connect_timeout=3"
    assert noticed(own, 10) == own
    assert conninfo.conninfo_to_dict(noticed(f"{URL}?tcp_user_timeout=0", 10))["tcp_user_timeout"] == "0"


def test_whoever_connects_by_the_settings_has_it_and_so_has_the_broker_in_a_database() -> None:
    settings = Settings(database_url=URL, broker_url=URL.replace("postgresql", "pgmq"), secret_key="k" * 32)
    told = noticed(URL, settings.lease_seconds)
    assert embedded.database_url(settings) == told
    assert Database.of(settings, "test").url == told
    assert broker.celery_app(settings, told).conf.broker_transport_options["dsn"] == told
    without = settings.model_copy(update={"broker_url": ""})
    assert broker.celery_app(without, told).conf.broker_transport_options["dsn"] == told


@pytest.fixture
def listener() -> Iterator[int]:
    """The port of a server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@linux
def test_the_kernel_is_told(listener: int) -> None:
    connection = pq.PGconn.connect_start(noticed(f"postgresql://x@127.0.0.1:{listener}/x?sslmode=disable", 10).encode())
    while connection.connect_poll() != pq.PollingStatus.READING:  # until the start-up message is on its way
        pass
    with socket.socket(fileno=connection.socket) as sock:
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 5
        sock.detach()
    connection.finish()


async def test_by_a_unix_socket_all_works_as_before(database_url: str) -> None:
    told = noticed(database_url, 10)
    assert conninfo.conninfo_to_dict(told)["host"].startswith("/")  # type: ignore[union-attr]
    current, newest = migrate.revisions(told)
    assert current == newest
    with psycopg.connect(told) as conn:
        assert conn.execute("select 1").fetchone() == (1,)
    async with Database(told, size=1) as database, database.transaction() as asynchronous:
        assert await (await asynchronous.execute("select 1")).fetchone() == (1,)
