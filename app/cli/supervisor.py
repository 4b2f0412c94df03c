"""Every part of Slackwater on one machine, under one process: started, restarted when it crashes, stopped together."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import IO, Any, TextIO

import psycopg
import structlog

from app import clock, optional_packages, processes
from app.cli.data_dir_lock import owned
from app.db import cluster, embedded, migrate
from app.db.pool import Database
from app.optional_packages import NotInstalled
from app.queue import partitions
from app.settings import Settings, child_environment
from app.telemetry import log_file
from app.user_errors import Failure

MARK = "SLACKWATER_SUPERVISOR"
PART = "SLACKWATER_PART"
ENGINE_MARK = "SLACKWATER_ENGINE"  # what workers.gpu.managed_engine marks its engines with
PARTS = {
    "api": "app.api",
    "steward": "workers.steward",
    "notifier": "workers.notifier",
    "gpu-worker": "workers.gpu",
}
_STOP_MARGIN_SECONDS = 25.0  # beyond the drain: for the engine to go, and for the notifier's last attempts
_STEADY_SECONDS = 30.0
_BACKOFF_SECONDS = (0.5, 30.0)
log = structlog.get_logger("supervisor")


@dataclass
class Child:
    """One part and its current process."""

    name: str
    module: str
    process: asyncio.subprocess.Process | None = None
    deaths: int = 0


class Supervisor:
    """Runs the database (if embedded) and all parts. `run` returns when `stop` was called and everything is down.

    Parts write to `output`, or without one each to its own file in `data_dir/logs`. `on_stage` hears what is begun on the way
    to `ready`.
    """

    def __init__(
        self,
        settings: Settings,
        output: TextIO | None = None,
        *,
        on_stage: Callable[[str], None] = lambda stage: None,
    ) -> None:
        self._settings = settings
        self._output = output
        self._on_stage = on_stage
        self._mark = str(settings.data_dir.resolve())
        self._engine_mark = f"{self._mark}:{settings.engine_name}"
        self._environment = child_environment(settings, {MARK: self._mark})
        self._children = [Child(name, module) for name, module in PARTS.items()]
        self.stopping = asyncio.Event()
        self.ready = asyncio.Event()

    def stop(self) -> None:
        """Begin to stop everything."""
        self.stopping.set()

    async def run(self) -> None:
        """Start everything, keep it running until `stop`. Raises Failure when the start itself is impossible."""
        optional_packages.check(self._settings)
        async with self._sole_owner(), self._database():
            tasks = [asyncio.create_task(self._keep(child)) for child in self._children]
            keeper = asyncio.create_task(self._keep_database())
            self.ready.set()
            await self.stopping.wait()
            log.info("stopping")
            await self._stop_children()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await keeper  # not cancelled: a server that it is just starting must be up before it can be stopped
        log.info("stopped")

    @asynccontextmanager
    async def _sole_owner(self) -> AsyncIterator[None]:
        """Hold the data directory's lock; kill what a killed predecessor left running."""
        with owned(self._settings):
            await self._sweep()
            try:
                yield
            finally:
                await self._sweep()

    async def _sweep(self) -> None:
        """Kill every part of this installation, and the engine, which carries a mark of its own."""
        while pids := [*processes.marked(MARK, self._mark), *processes.marked(ENGINE_MARK, self._engine_mark)]:
            log.warning("leftovers.killed", pids=pids)
            processes.kill(pids)
            await asyncio.sleep(0.1)

    @asynccontextmanager
    async def _database(self) -> AsyncIterator[None]:
        """A reachable, migrated database with partitions; the embedded one is stopped again at the end."""
        settings = self._settings
        try:
            self._on_stage("database")
            if not settings.database_url:
                log.debug("database.starting", folder=str(cluster.place(settings).cluster))
                await _start_embedded(settings)
            self._on_stage("schema")
            await _migrate(settings)
            yield
        finally:
            if not settings.database_url:
                await asyncio.to_thread(embedded.stop, settings)

    async def _keep_database(self) -> None:
        """Start the embedded server again whenever it does not answer, until `stop`."""
        while not self._settings.database_url and not await self._told_to_stop(within=1):
            try:
                async with await psycopg.AsyncConnection.connect(
                    embedded.database_url(self._settings), connect_timeout=5
                ) as conn:
                    await conn.execute("select 1")
            except psycopg.OperationalError as error:
                log.warning("database.down", error=str(error).strip().split("\n")[0])
                try:
                    await asyncio.to_thread(embedded.start, self._settings)
                    log.info("database.restarted")
                except Exception as failure:
                    log.error("database.restart_failed", error=str(failure))

    async def _told_to_stop(self, within: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), within)
        return self.stopping.is_set()

    async def _keep(self, child: Child) -> None:
        """Run one part for ever, restarting it with backoff."""
        pause = _BACKOFF_SECONDS[0]
        while not self.stopping.is_set():
            began = clock.monotonic()
            child.process = await self._start(child)
            log.debug("part.started", name=child.name, pid=child.process.pid)
            code = await child.process.wait()
            if self.stopping.is_set():
                return
            child.deaths += 1
            pause = (
                _BACKOFF_SECONDS[0]
                if clock.monotonic() - began > _STEADY_SECONDS
                else min(pause * 2, _BACKOFF_SECONDS[1])
            )
            log.error("part.died", name=child.name, exit_code=code, restart_in_seconds=pause)
            await asyncio.sleep(pause)

    async def _start(self, child: Child) -> asyncio.subprocess.Process:
        with self._output_of(child) as output:
            return await asyncio.create_subprocess_exec(
                *processes.python_module(child.module),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**self._environment, PART: child.name},
                start_new_session=True,
                preexec_fn=processes.dies_with_parent(),
            )

    def _output_of(self, child: Child) -> AbstractContextManager[IO[Any]]:
        if self._output is not None:
            return nullcontext(self._output)
        file = log_file(self._settings.data_dir, child.name)
        file.parent.mkdir(parents=True, exist_ok=True)
        return file.open("ab")  # append only: it is rotated while it is written

    def deaths(self, part: str) -> int:
        """How often a part has died since the start."""
        return next(child.deaths for child in self._children if child.name == part)

    async def _stop_children(self) -> None:
        """SIGTERM to all; the GPU worker drains meanwhile; SIGKILL to whoever is left at the end."""
        running = [child.process for child in self._children if child.process and child.process.returncode is None]
        for process in running:
            processes.signal_group(process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(self._settings.drain_seconds + _STOP_MARGIN_SECONDS):
                await asyncio.gather(*(process.wait() for process in running))
        except TimeoutError:
            log.warning("parts.killed", pids=[p.pid for p in running if p.returncode is None])
        for process in running:
            processes.signal_group(process.pid, signal.SIGKILL)
        await asyncio.gather(*(process.wait() for process in running))


async def _start_embedded(settings: Settings) -> None:
    """Raises Failure."""
    try:
        await asyncio.to_thread(embedded.start, settings)
    except NotInstalled as missing:
        raise Failure(str(missing), missing.remedy) from missing
    except Exception as error:  # the wheel raises whatever its programs make of it
        reason = (str(error).strip().splitlines() or [repr(error)])[-1]
        remedy = f"Its own log is {embedded.log_file(settings)}. `slackwater doctor` checks the machine."
        raise Failure(f"The embedded PostgreSQL did not start: {reason}", remedy) from error


async def _migrate(settings: Settings) -> None:
    """Bring the schema up to date and make today's partitions. Raises Failure."""
    url = embedded.database_url(settings)
    try:
        await asyncio.to_thread(migrate.upgrade, url)
        async with Database(url, size=1) as database, database.transaction() as conn:
            await partitions.create(conn, settings.partition_days_ahead)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [repr(error)])[0]
        raise Failure(f"The database cannot be used: {reason}", "Run `slackwater doctor` for details.") from error


def on_signals(supervisor: Supervisor) -> None:
    """Let SIGINT and SIGTERM begin the stop; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    asked = False

    def handle() -> None:
        nonlocal asked
        if asked:
            os._exit(130)
        asked = True
        supervisor.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, handle)
