"""Fixtures that all tests may use."""

from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path

import pytest
import structlog

from app import quick_start
from app.db.pool import Database
from app.metering import families
from app.settings import DEMO_MODELS, Settings
from testing import clusters

pytest_plugins = [
    "tests.sets",
    "tests.databases",
    "tests.clock",
    "tests.timing",
    "tests.short_locks",
    "tests.ran_on",
    "tests.other_postgres",
    "tests.installation",
    "tests.servers",
    "tests.api.fixtures",
    "tests.queue.plans",
]


def pytest_configure() -> None:
    """Tracebacks in the log of a test are plain: structlog's own, with all variables, take a hundred times as long."""
    *others, _ = structlog.get_config()["processors"]
    plain = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*others, plain])


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


@cache
def _usual() -> Settings:
    """Fast timers. Made once, because it takes as long as many a test."""
    return Settings(
        secret_key="test-secret-key-of-at-least-32-bytes!",
        models_file=DEMO_MODELS,
        lease_seconds=3,
        heartbeat_seconds=0.5,
        steward_seconds=0.1,
        batch_max_in_flight=16,
        webhook_allow_private="loopback",
        worker_metrics_port=0,
        notifier_metrics_port=0,
        maintenance_metrics_port=0,
        console_port=0,
        steward_metrics_port=0,
    )


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    """Settings of one test: its own database and data directory, fast timers."""
    return _usual().model_copy(update={"data_dir": tmp_path, "database_url": database_url})


@pytest.fixture
async def database(settings: Settings) -> AsyncIterator[Database]:
    """Open pools on the test's database."""
    async with Database.of(settings, "test") as database:
        yield database
