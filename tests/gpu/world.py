"""A world with a queue, a fake engine and a steward, for workers in this process or in their own."""

import asyncio
import json
import os
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from app.db.pool import Database
from app.engines import catalogue
from app.engines.catalogue import Model
from app.queue import chunk_sweeps, copy_format, expiry, ingest, order_deltas, reaping, settling
from app.queue.chunking import cut
from app.settings import Settings
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually, in_time
from workers.gpu.attached_engine import AttachedEngine
from workers.gpu.ending import Ending
from workers.gpu.tuning import TUNING, WorkerTuning
from workers.gpu.worker import WorkerEngine
from workers.gpu.worker_process import WorkerProcess

MODEL = "smollm2-135m-instruct"


@dataclass
class World:
    """Everything a worker meets. `engine` is in this process."""

    settings: Settings
    database: Database
    engine: FakeEngine
    tenant: int
    pool: int
    steward: "asyncio.Task[None] | None" = None

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

    async def finished(self, batch_id: int) -> None:
        """Wait until the batch is final."""
        await self.until(f"exists (select from batch where batch_id = {batch_id} and finalized_at is not null)")

    async def results(self, batch_id: int) -> dict[int, tuple[int, int, Any]]:
        """(ok, attempt, body) by seq; fails on two results of one item."""
        found = await self.fetch("select seq, ok, attempt, body from item_result where batch_id = %s", batch_id)
        assert max(Counter(row[0] for row in found).values(), default=0) <= 1
        return {seq: (ok, attempt, json.loads(bytes(body))) for seq, ok, attempt, body in found}

    async def until(self, condition: str) -> None:
        """Wait until a query returns true."""

        async def holds() -> bool:
            if self.steward is not None and self.steward.done():
                self.steward.result()  # nothing goes on without it: its error says why
            return bool((await self.fetch(f"select {condition}"))[0][0])

        await eventually(holds, condition)

    async def lapse(self) -> None:
        """Date back the leases of workers that were killed."""
        await self.fetch("update worker set lease_until = now() - interval '1 second' returning 1")

    @asynccontextmanager
    async def worker(
        self, own: WorkerEngine | None = None, tuning: WorkerTuning = TUNING, **changes: Any
    ) -> AsyncIterator["Running"]:
        """A worker in this process, drained at the end: of the world's engine, or of its own."""
        settings = self.settings.model_copy(update=changes)
        model = catalogue.load(settings.models_file).resolve(MODEL)
        assert model is not None
        async with Database.of(settings, "gpu test") as database:
            running = Running(settings, database, model, own or AttachedEngine(settings), tuning)
            try:
                yield running
            finally:
                await running.stop()


class Running:
    """A worker in a process of its own, as far as one process has room for that."""

    def __init__(
        self, settings: Settings, database: Database, model: Model, engine: WorkerEngine, tuning: WorkerTuning = TUNING
    ) -> None:
        self.process = WorkerProcess(settings, database, tuning)
        self._stack = ExitStack()
        self.worker = self._stack.enter_context(self.process.worker(settings, model, engine))
        self.ending = Ending()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        with self._stack:
            async with self.process:
                await self.worker.run(self.ending)

    async def stop(self) -> None:
        """SIGTERM's equivalent."""
        self.ending.finish()
        async with in_time():
            await self.task


async def tend(database: Database) -> None:
    """The steward's verbs, over and over."""
    while True:
        async with database.durable() as conn:
            await reaping.reap(conn)
            await order_deltas.fold(conn)
            await chunk_sweeps.promote(conn)
            await expiry.expire(conn)
            await chunk_sweeps.sweep(conn)
        async with database.transaction() as conn:
            await settling.settle(conn)
        await asyncio.sleep(0.05)


@asynccontextmanager
async def process(world: World, **changes: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`python -m workers.gpu` in the world's settings. `changes`: other variables, without the prefix."""
    s = world.settings
    environment = {
        "SLACKWATER_DATA_DIR": str(s.data_dir),
        "SLACKWATER_DATABASE_URL": s.database_url,
        "SLACKWATER_SECRET_KEY": s.secret_key.get_secret_value(),
        "SLACKWATER_ENGINE_URL": s.engine_url,
        "SLACKWATER_ENGINE_MODEL": MODEL,
        "SLACKWATER_LEASE_SECONDS": "30",  # longer than a busy machine may stand still
        "SLACKWATER_HEARTBEAT_SECONDS": "0.2",
        "SLACKWATER_DRAIN_SECONDS": "5",
        "SLACKWATER_SAMPLE_SECONDS": "0.05",
        "SLACKWATER_LOG_FORMAT": "json",
        **{f"SLACKWATER_{name}": value for name, value in changes.items()},
    }
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "workers.gpu", env={**os.environ, **environment}, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()
