"""Engines that are ready in the database, a worker that receives announcements, and the API behind a real socket."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import uvicorn
from aiohttp import web

from app.db.pool import Database
from app.engines import service as engines
from app.queue import service as queue
from app.settings import Settings
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually
from tests.api import in_process
from tests.queue.support import report_engine


class Registry:
    """Registers engines as a worker does."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ready(
        self,
        engine: FakeEngine,
        name: str = "engine-0",
        *,
        arrival_url: str | None = None,
        lease_seconds: float = 60,
        slots: int = 256,
    ) -> tuple[int, int]:
        """Take an engine and report it ready. Returns the engine id and the worker id."""
        async with self._database.durable() as conn:
            pool_id = await engines.ensure_pool(conn, engine.model)
            worker_id = await queue.register_worker(conn, pool_id=pool_id, host="h", pid=1, lease_seconds=lease_seconds)
            engine_id = await engines.take_engine(
                conn,
                name=name,
                pool_id=pool_id,
                url=engine.url,
                mode="attached",
                worker_id=worker_id,
                slots=slots,
                arrival_url=arrival_url,
            )
            assert engine_id is not None
            said = {"ready": True, "reason": None, "allowance": 0}
            assert await report_engine(conn, engine_id, worker_id, lease_seconds=lease_seconds, **said)
        return engine_id, worker_id


class FakeWorker:
    """Receives announcements into `events`. `before` runs at each. It refuses with `status`, or never answers if `deaf`."""

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

    async def event(self, name: str) -> dict[str, Any]:
        """The first event of this name, once it has arrived."""
        return (await eventually(lambda: [each for each in self.events if each["event"] == name], name))[0]


@asynccontextmanager
async def serve(settings: Settings) -> AsyncIterator[str]:
    """The URL of an API that serves until the block is left."""
    config = uvicorn.Config(
        in_process.served(settings), port=0, log_config=None, access_log=False, timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    try:
        await eventually(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
