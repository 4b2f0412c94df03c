"""`python -m workers.gpu`: run one GPU worker until SIGTERM or SIGINT. Exit code 0 after a drain."""

import asyncio
import signal

import structlog

import app.quick_start  # noqa: F401
from app import processes, telemetry
from app import settings as configuration
from app.changes import service as changes
from app.db.pool import Database
from app.engines.catalogue import CatalogueError
from app.engines.model_weights import ModelUnavailable
from app.files import shared_storage
from app.headroom.selftest import SelfTestError
from app.settings import Settings
from app.tracing import recorder
from app.user_errors import guarded
from workers.gpu.attached_engine import AttachedEngine
from workers.gpu.managed_engine import ManagedEngine
from workers.gpu.model_adoption import model_of
from workers.gpu.worker import Worker

log = structlog.get_logger()


async def serve(settings: Settings) -> None:
    """Run a worker for the settings' engine. Raises CatalogueError, ModelUnavailable, StoreNotShared, Failure."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Database.of(settings, f"gpu {settings.engine_name}") as database:
        await changes.started(database, f"gpu-worker {settings.engine_name}")
        model = await model_of(settings, database, stop)
        if model is None:
            return
        await shared_storage.require_bodies(database, settings, f"gpu-worker {settings.engine_name}")
        engine = AttachedEngine(settings) if settings.engine_url else ManagedEngine(settings, model)
        await Worker(settings, database, model, engine).run(stop)


def main() -> int:
    """The exit code: 0 after a drain, 1 if the worker cannot serve."""
    processes.keep_private()
    settings = configuration.load()
    telemetry.configure(settings, f"gpu/{settings.engine_name}")
    recorder.configure(settings, f"gpu/{settings.engine_name}")
    code = 0
    try:
        asyncio.run(serve(settings))
    except* (CatalogueError, ModelUnavailable, SelfTestError) as errors:
        for error in errors.exceptions:
            log.error("worker.cannot_serve", error=str(error))
        code = 1
    return code


if __name__ == "__main__":
    guarded(main)
