"""Engines that are ready by the database's word, and the API behind a real socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from app.api.app import create_app
from app.db.pool import Database
from app.engines import service as engines
from app.queue import service as queue
from app.settings import Settings
from testing.fakes.engine import FakeEngine


class Registry:
    """Enters engines as a worker does."""

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
        """Take it and report it ready. Returns engine id and worker id."""
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
            assert await engines.report_engine(conn, engine_id, worker_id, ready=True, reason=None, allowance=0)
        return engine_id, worker_id


@asynccontextmanager
async def serve(settings: Settings) -> AsyncIterator[str]:
    """The URL of an API that serves until the block is left."""
    config = uvicorn.Config(
        create_app(settings), port=0, log_config=None, access_log=False, timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
