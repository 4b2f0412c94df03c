"""A gateway on the test's database, and a worker's ear."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest
from aiohttp import web

from app.crypto import secret_key
from app.db.pool import Database
from app.engines import catalogue
from app.gateway.relay import Gateway, SyncCall
from app.settings import Settings
from tests.gateway.support import Registry


class Ear:
    """Hears what a worker is told, in `events`; `before` runs at each. It may refuse by `status`, or be `deaf`."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.messages = 0
        self.status = 204
        self.deaf = False
        self.before: Callable[[], None] = lambda: None
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        """POST /arrivals."""
        self.messages += 1
        assert request.headers["authorization"].startswith("Bearer ")
        if self.deaf:
            await asyncio.Event().wait()
        if self.status == 204:
            async for line in request.content:
                self.before()
                self.events.append(orjson.loads(line))
        return web.Response(status=self.status)

    async def told(self, event: str) -> dict[str, Any]:
        """The first such event, once it has come."""
        async with asyncio.timeout(5):
            while not (found := [each for each in self.events if each["event"] == event]):
                await asyncio.sleep(0.01)
        return found[0]


@pytest.fixture
async def ear() -> AsyncIterator[Ear]:
    ear = Ear()
    app = web.Application()
    app.router.add_post("/arrivals", ear.take)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    ear.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield ear
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
