"""The world of a GPU worker: a queue, a fake engine and a steward."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.db.pool import Database
from app.engines import service as engines
from app.settings import Settings
from testing.fakes.engine import FakeEngine
from tests.gpu.world import MODEL, World, tend
from tests.queue import support


@pytest.fixture
async def world(settings: Settings, database: Database) -> AsyncIterator[World]:
    """Queue, engine and steward."""
    async with database.durable() as conn:
        tenant = await support.make_tenant(conn)
        pool = await engines.ensure_pool(conn, MODEL)
    async with FakeEngine(latency=0.01) as engine:
        changes = {"engine_url": engine.url, "sample_seconds": 0.05, "drain_seconds": 5, "request_timeout_seconds": 5}
        steward = asyncio.create_task(tend(database))
        yield World(settings.model_copy(update=changes), database, engine, tenant, pool, steward)
        steward.cancel()
