"""What all workers of one process share: database connections, heartbeats, the HTTP server, metrics, readings of the GPUs."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from types import TracebackType
from typing import Self

import structlog

from app.crypto import secret_key
from app.db.pool import Database
from app.engines.catalogue import Model
from app.environment import visible_gpus
from app.headroom.gpu import Gpu, GpuProbe, memory_signal
from app.settings import Settings
from workers import metrics_page
from workers.gpu import metrics
from workers.gpu.heartbeats import Heartbeats
from workers.gpu.http_server import HttpServer
from workers.gpu.tuning import TUNING, WorkerTuning
from workers.gpu.worker import Worker, WorkerEngine

GPU_SECONDS = 1.0  # between two readings of the GPUs

log = structlog.get_logger()


class WorkerProcess:
    """Makes workers, each of one engine. Use as an async context manager, within which they run."""

    def __init__(self, settings: Settings, database: Database, tuning: WorkerTuning = TUNING) -> None:
        self.database = database
        self.tuning = tuning
        self._settings = settings
        self._server = HttpServer(settings, secret_key(settings), metrics=self.page)
        self._heartbeats = Heartbeats(
            database, every_seconds=settings.heartbeat_seconds, lease_seconds=settings.lease_seconds
        )
        self._workers: list[Worker] = []
        self._gpus: tuple[Gpu, ...] = ()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._heartbeats.close)
            await stack.enter_async_context(self._server)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            for part in (self._watch_gpus(), self._serve_page()):
                stack.callback(group.create_task(part).cancel)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What the workers raise goes on as it is. A cancellation may be that of a part that has failed."""
        if isinstance(error, asyncio.CancelledError):
            await self._stack.__aexit__(kind, error, trace)
        else:
            await self._stack.aclose()

    @contextmanager
    def worker(
        self, settings: Settings, model: Model, engine: WorkerEngine, *, stands_by: bool = True
    ) -> Iterator[Worker]:
        """A worker of this engine, whose metrics are on the page while the block runs. `settings`: those of the engine."""
        worker = Worker(
            settings,
            self.database,
            model,
            engine,
            server=self._server,
            heartbeats=self._heartbeats,
            tuning=self.tuning,
            stands_by=stands_by,
        )
        self._workers.append(worker)
        try:
            yield worker
        finally:
            self._workers.remove(worker)

    def stand_by(self) -> None:
        """The list of engines was read: the process is healthy while it has none, too."""
        self._server.stand_by()

    def page(self) -> bytes:
        """The metrics of all workers, as Prometheus text."""
        return metrics.exposition([worker.view() for worker in self._workers], self._gpus)

    async def _serve_page(self) -> None:
        settings = self._settings
        port = metrics.port(settings)
        await metrics_page.serve(settings.host, port, "SLACKWATER_WORKER_METRICS_PORT", self.page)

    async def _watch_gpus(self) -> None:
        probe, full = GpuProbe(visible_gpus()), False
        while True:
            self._gpus = await asyncio.to_thread(probe.read)
            was, signal = full, memory_signal(self._gpus, self._settings.gpu_memory_ceiling)
            full = signal is not None
            if signal is not None and not was:
                log.warning("gpu.memory_full", usage=round(signal[1], 3), ceiling=signal[2])
            await asyncio.sleep(GPU_SECONDS)
