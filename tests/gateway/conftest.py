"""A gateway on the test's database, and a fake worker that receives its announcements."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from app.crypto import secret_key
from app.db.pool import Database
from app.engines import catalogue
from app.gateway.relay import Gateway, SyncCall
from app.settings import Settings
from tests.gateway.support import FakeWorker, Registry


@pytest.fixture
async def worker() -> AsyncIterator[FakeWorker]:
    worker = FakeWorker()
    app = web.Application()
    app.router.add_post("/arrivals", worker.take)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    worker.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield worker
    await runner.cleanup()


@pytest.fixture
async def gateway(settings: Settings, database: Database) -> AsyncIterator[Gateway]:
    async with Gateway(settings, database, secret_key(settings)) as gateway:
        yield gateway


@pytest.fixture
def registry(database: Database) -> Registry:
    return Registry(database)


@pytest.fixture
def call(settings: Settings) -> SyncCall:
    model = catalogue.load(settings.models_file).resolve("smollm2-135m-instruct")
    assert model is not None
    return SyncCall(model, {"messages": [{"role": "user", "content": "hello"}]}, 7, 12, 34)
