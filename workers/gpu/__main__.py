"""`python -m workers.gpu`: run the workers of this process's engines until SIGTERM or SIGINT. Exit code 0 after a drain.

The first signal lets running requests end; a second one hands them back at once.
"""

import asyncio
import signal
import socket

import structlog

import app.quick_start  # noqa: F401
from app import environment, processes, telemetry
from app import settings as configuration
from app.changes import service as changes
from app.db.pool import Database
from app.engines.catalogue import CatalogueError
from app.engines.model_weights import ModelUnavailable
from app.headroom.selftest import SelfTestError
from app.memory import trim_often
from app.settings import Settings
from app.tracing import recorder
from app.user_errors import guarded
from workers.gpu.ending import Ending
from workers.gpu.roster import Roster
from workers.gpu.worker_process import WorkerProcess

log = structlog.get_logger()


async def serve(settings: Settings) -> None:
    """Run the workers of the settings' engines. Raises CatalogueError, ModelUnavailable, EngineListError, Failure."""
    ending = Ending()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.signal)
    async with Database.of(settings, f"gpu {name_of(settings)}") as database:
        await changes.started(database, f"gpu-worker {name_of(settings)}")
        async with WorkerProcess(settings, database) as process:
            await Roster(settings, process).run(ending)


def name_of(settings: Settings) -> str:
    """What this process is called: by its engine or, if it takes several, by its host."""
    return socket.gethostname() if settings.engines else settings.engine_name


def main() -> int:
    """The exit code: 0 after a drain, 1 if the worker cannot serve."""
    processes.keep_private()
    if (
        not environment.is_supervised()
    ):  # `up` finds its parts by their environment, and keeps secrets in files of the same user
        processes.keep_unreadable()
    settings = configuration.load()
    telemetry.configure(settings, f"gpu/{name_of(settings)}")
    recorder.configure(settings, f"gpu/{name_of(settings)}")
    trim_often()
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
