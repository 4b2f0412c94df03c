"""A world with a queue, a fake engine and a steward, for workers in this process or in their own."""

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from app.db.pool import Database
from app.engines import catalogue
from app.engines import service as engines
from app.queue import copy_format, ingest, maintenance
from app.queue.chunking import cut
from app.settings import Settings
from testing.fakes.engine import FakeEngine
from tests.queue import support
from workers.gpu.attached_engine import AttachedEngine
from workers.gpu.policy import POLICY, WorkerPolicy
from workers.gpu.worker import Worker, WorkerEngine

MODEL = "smollm2-135m-instruct"


@dataclass
class World:
    """Everything a worker meets. `engine` is in this process."""

    settings: Settings
    database: Database
    engine: FakeEngine
    tenant: int
    pool: int

    async def submit(self, items: Sequence[str | dict[str, Any]], *, chunk: int = 8, open_ended: bool = False) -> int:
        """A batch of one item per prompt, or of whole items. Returns its id."""
        async with self.database.transaction() as conn:
            batch_id = await ingest.next_batch_id(conn)
            endpoint = "/v1/chat/completions"
            batch = ingest.NewBatch(
                batch_id,
                uuid.uuid4(),
                self.tenant,
                self.pool,
                MODEL,
                endpoint,
                len(items),
                86_400,
                open_ended=open_ended,
            )
            payload = [copy_format.HEADER]
            for seq, item in enumerate(items):
                given = {"prompt": item} if isinstance(item, str) else item
                body = json.dumps({"external_reference": "r", "temperature": 0} | given).encode()
                payload.append(copy_format.payload_row(batch_id, seq, None, None, 100, body))
            payload.append(copy_format.TRAILER)
            await ingest.enqueue(conn, batch, payload, cut([100] * len(items), max_tokens=99_999, max_items=chunk))
        return batch_id

    async def fetch(self, sql: str, *parameters: object) -> list[Any]:
        async with self.database.durable() as conn:
            return await (await conn.execute(sql, parameters)).fetchall()

    async def finished(self, batch_id: int, seconds: float = 15) -> None:
        """Wait until the batch is final."""
        async with asyncio.timeout(seconds):
            while not await self.fetch(
                "select 1 from batch where batch_id = %s and finalized_at is not null", batch_id
            ):
                await asyncio.sleep(0.02)

    async def results(self, batch_id: int) -> dict[int, tuple[int, int, Any]]:
        """(ok, attempt, body) by seq; fails on two results of one item."""
        found = await self.fetch("select seq, ok, attempt, body from item_result where batch_id = %s", batch_id)
        assert max(Counter(row[0] for row in found).values(), default=0) <= 1
        return {seq: (ok, attempt, json.loads(bytes(body))) for seq, ok, attempt, body in found}

    async def until(self, condition: str, seconds: float = 10) -> None:
        """Wait until a query returns true."""
        async with asyncio.timeout(seconds):
            while not (await self.fetch(f"select {condition}"))[0][0]:
                await asyncio.sleep(0.02)

    @asynccontextmanager
    async def worker(
        self, own: WorkerEngine | None = None, policy: WorkerPolicy = POLICY, **changes: Any
    ) -> AsyncIterator["Running"]:
        """A worker in this process, drained at the end: of the world's engine, or of its own."""
        settings = self.settings.model_copy(update=changes)
        model = catalogue.load(settings.models_file).resolve(MODEL)
        assert model is not None
        async with Database.of(settings, "gpu test") as database:
            running = Running(Worker(settings, database, model, own or AttachedEngine(settings), policy))
            try:
                yield running
            finally:
                await running.stop()


class Running:
    """A worker's task and its stop event."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._stop = asyncio.Event()
        self.task = asyncio.create_task(worker.run(self._stop))

    async def stop(self) -> None:
        """SIGTERM's equivalent."""
        self._stop.set()
        async with asyncio.timeout(30):
            await self.task


@pytest.fixture
async def world(settings: Settings, database: Database) -> AsyncIterator[World]:
    """Queue, engine and steward."""
    async with database.durable() as conn:
        tenant = await support.make_tenant(conn)
        pool = await engines.ensure_pool(conn, MODEL)
    async with FakeEngine(latency=0.01) as engine:
        changes = {"engine_url": engine.url, "sample_seconds": 0.05, "drain_seconds": 5, "request_timeout_seconds": 5}
        steward = asyncio.create_task(tend(database))
        yield World(settings.model_copy(update=changes), database, engine, tenant, pool)
        steward.cancel()


async def tend(database: Database) -> None:
    """The steward's verbs, over and over."""
    while True:
        async with database.durable() as conn:
            await maintenance.reap(conn)
            await maintenance.promote(conn)
            await maintenance.expire(conn)
        async with database.transaction() as conn:
            await maintenance.sweep(conn)
            await maintenance.settle(conn)
        await asyncio.sleep(0.05)
