"""A PgBouncer in front of the test's database."""

from collections.abc import AsyncIterator, Iterator

import pytest

from app.db import embedded
from app.db.pool import Database
from app.settings import Settings
from testing import clusters
from testing.pgbouncer import MISSING, PgBouncer, pooling, program, version
from tests import needs
from tests.ran_on import met


@pytest.fixture
def installed() -> None:
    """Of each test that starts a PgBouncer. Without one the test is skipped."""
    if path := program():
        met(f"PgBouncer {'.'.join(map(str, version(path)))}")
    else:
        needs.missing(MISSING)


@pytest.fixture
def pooler(installed: None, settings: Settings) -> Iterator[PgBouncer]:
    """In transaction mode, with two connections to the server: who is served next gets another one."""
    with clusters.folder() as folder, pooling(folder, settings.database_url, default_pool_size=2) as running:
        yield running


@pytest.fixture
def pooled_settings(settings: Settings, pooler: PgBouncer) -> Settings:
    """The test's settings through the pooler, with the server's own URL beside."""
    update = {"database_url": pooler.url, "database_direct_url": embedded.database_url(settings)}
    return settings.model_copy(update=update)


@pytest.fixture
async def pooled(pooled_settings: Settings) -> AsyncIterator[Database]:
    """An open pool of connections to the pooler."""
    async with Database.of(pooled_settings, "test") as database:
        yield database
