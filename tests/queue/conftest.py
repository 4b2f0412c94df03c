"""Fixtures of the queue's tests."""

from collections.abc import AsyncIterator

import pytest

from app.db.pool import Database
from app.engines.service import ensure_pool
from app.settings import Settings
from app.storage.store import Store
from tests.queue import support
from tests.queue.past import Past


@pytest.fixture
async def past(database: Database, settings: Settings) -> AsyncIterator[Past]:
    """A helper that makes old days with batches. The tenant has an endpoint for their events."""
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await ensure_pool(conn, "toy")
        await conn.execute(
            "insert into endpoint (tenant_id, name, url, kinds, secret, state)"
            " values (%s, 'n', 'http://x', '{batch.queued}', '', 'active')",
            (tenant,),
        )
        yield Past(database, conn, tenant, pool, Store.of(settings))
