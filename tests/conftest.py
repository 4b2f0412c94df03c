"""One embedded PostgreSQL per run, one migrated template, one fresh database per test."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from app import quick_start
from app.db import embedded, migrate, session_settings
from app.db.metadata import metadata
from app.db.pool import Database
from app.metering import families
from app.queue import partitions
from app.settings import Settings
from testing import clusters

pytest_plugins = [
    "tests.timing",
    "tests.ran_on",
    "tests.other_postgres",
    "tests.sharing",
    "tests.servers",
    "tests.api.fixtures",
    "tests.queue.plans",
]

# A busy machine is no reason to fail.
hypothesis_settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("here")

EXPANDED = "TESTS_ON_EXPANDED_SCHEMA"  # set: every test runs on a schema newer than the code
_numbers = itertools.count()


def pytest_collection_finish() -> None:
    """All tests are imported, which are more than a million objects."""
    quick_start.finish()


@pytest.fixture(scope="session", autouse=True)
def _no_cluster_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    yield
    clusters.sweep(tmp_path_factory.getbasetemp().resolve())


@pytest.fixture(autouse=True)
def _no_prompt_was_seen() -> None:
    """A process remembers which prompts it has seen, and the accounts of all tests have the same ids."""
    families.of.cache_clear()


@pytest.fixture(scope="session")
def server_settings() -> Iterator[Settings]:
    """Settings of the run's own embedded server, stopped and deleted at the end."""
    with clusters.folder() as folder:
        settings = Settings(data_dir=folder)
        embedded.start(settings)
        with psycopg.connect(embedded.database_url(settings), autocommit=True) as conn:
            for name, value in session_settings.OF_ROLE.items():  # a copy of the template has none of its own
                conn.execute(f"alter role current_user set {name} = '{value}'".encode())
            conn.execute("alter system set max_wal_size = '256MB'")  # it may lie in memory
            conn.execute("select pg_reload_conf()")
        yield settings
        embedded.stop(settings, "immediate")


@pytest.fixture(scope="session")
def template(server_settings: Settings) -> str:
    """Name of a migrated database with partitions, copied for each test."""
    admin = embedded.database_url(server_settings)
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute("create database template_slackwater")
    url = admin.replace("/postgres?", "/template_slackwater?")
    migrate.upgrade(url)
    asyncio.run(_partitions(url))
    if os.environ.get(EXPANDED):
        _expand(url)
    return "template_slackwater"


def _expand(url: str) -> None:
    """Give each table a column more, as the next version may: no statement may notice."""
    with psycopg.connect(url) as conn:
        for table in metadata.sorted_tables:
            conn.execute(f"alter table {table.name} add column only_the_next_version text default 'added'".encode())


async def _partitions(url: str) -> None:
    async with Database(url, size=1) as database, database.transaction() as conn:
        await partitions.create(conn, days_ahead=2)


@pytest.fixture(scope="session")
def administer(server_settings: Settings) -> Iterator[Callable[[str], None]]:
    """Runs a statement on the run's server: by one connection, and by a new one after a test has stopped the server."""
    admin = embedded.database_url(server_settings)
    conn = psycopg.connect(admin, autocommit=True)

    def execute(statement: str) -> None:
        nonlocal conn
        try:
            conn.execute(statement.encode())
        except psycopg.OperationalError:
            if not conn.closed:
                raise
            conn = psycopg.connect(admin, autocommit=True)
            conn.execute(statement.encode())

    yield execute
    conn.close()


@cache
def _version(url: str) -> str:
    with psycopg.connect(url) as conn:
        return str(conn.info.parameter_status("server_version")).split()[0]


@pytest.fixture
def database_url(server_settings: Settings, template: str, administer: Callable[[str], None]) -> Iterator[str]:
    """URL of a fresh, migrated database."""
    from tests.other_postgres import KIND  # as plug-ins these are loaded after this file
    from tests.ran_on import met

    met(f"PostgreSQL {_version(embedded.database_url(server_settings))}, {KIND}")
    name = f"test_{os.getpid()}_{next(_numbers)}"
    administer(f"create database {name} template {template} strategy file_copy")  # half the time of `wal_log`
    yield embedded.database_url(server_settings).replace("/postgres?", f"/{name}?")
    administer(f"drop database {name} with (force)")


@pytest.fixture
def stoppable_server(server_settings: Settings, database_url: str) -> Iterator[Settings]:
    """Settings as they ship, on a fresh database of the run's server. The test may stop it; afterwards it runs again."""
    yield server_settings.model_copy(update={"database_url": database_url})
    embedded.start(server_settings)


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    """Settings of one test: its own database and data directory, fast timers."""
    return Settings(
        data_dir=tmp_path,
        database_url=database_url,
        secret_key="test-secret-key-of-at-least-32-bytes!",
        lease_seconds=3,
        heartbeat_seconds=0.5,
        steward_seconds=0.05,
        batch_max_in_flight=16,
        webhook_allow_private="loopback",
        worker_metrics_port=0,
        notifier_metrics_port=0,
        console_port=0,
        steward_metrics_port=0,
    )


@pytest.fixture
async def database(settings: Settings) -> AsyncIterator[Database]:
    """Open pools on the test's database."""
    async with Database.of(settings, "test") as database:
        yield database
