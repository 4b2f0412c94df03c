"""Runs every part of Slackwater on one machine: starts them, restarts them when they crash, stops them together."""

import asyncio
import json
import operator
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any, NamedTuple, TextIO

import psycopg
import structlog
from tenacity import retry, retry_if_result, wait_fixed

from app import clock, life_signs, optional_packages, processes
from app.causes import cause
from app.changes import service as changes
from app.cli import last_run, leftovers
from app.cli.data_dir_lock import owned
from app.cli.last_run import KilledRun
from app.cli.log_files import last_error
from app.db import cluster, direct, embedded
from app.db.pool import Connection, Database
from app.db.transient_errors import TRANSIENT
from app.db.watched_connection import WatchedConnection
from app.environment import PART, child_environment
from app.optional_packages import NotInstalled
from app.settings import Settings
from app.telemetry import log_file
from app.user_errors import Failure

PARTS = {
    "api": "app.api",
    "steward": "workers.steward",
    "maintenance": "workers.maintenance",
    "notifier": "workers.notifier",
    "gpu-worker": "workers.gpu",
    "console": "app.console",
}
_STOP_MARGIN_SECONDS = 25.0  # after the drain: for the engine's exit and the notifier's last attempts
_STEADY_SECONDS = 30.0
_NOTE_SECONDS, _NOTE_PAUSE_SECONDS = 10.0, 2.0
_LOOK_SECONDS = 10.0  # between two looks for a sign of life
_WATCHED = ("steward", "gpu-worker")  # whose loops give signs of life
_BACKOFF_SECONDS = (0.5, 30.0)
log = structlog.get_logger("supervisor")


@dataclass
class Child:
    """One part and its current process."""

    name: str
    module: str
    process: asyncio.subprocess.Process | None = None
    deaths: int = 0


class Death(NamedTuple):
    """A part that has ended by itself."""

    part: str
    exit_code: int
    at: datetime

    async def note(self, conn: Connection) -> None:
        """Write it to the timeline, at its time."""
        await changes.died(conn, *self)


class Supervisor:
    """Runs the database (if embedded) and all parts. `run` returns after `stop`, when everything has stopped.

    Parts write to `output`, or without it each to its own file in `data_dir/logs`. `on_stage` is called with the name of
    each stage of the start. `command`: the one that runs it.
    """

    def __init__(
        self,
        settings: Settings,
        output: TextIO | None = None,
        *,
        on_stage: Callable[[str], None] = lambda stage: None,
        command: str = "up",
    ) -> None:
        self._command = command
        self._settings = settings
        self._output = output
        self._on_stage = on_stage
        self._environment = child_environment(settings, {leftovers.MARK: leftovers.mark(settings)})
        parts = {name: module for name, module in PARTS.items() if name != "console" or settings.console_port}
        self._children = [Child(name, module) for name, module in parts.items()]
        self._killed: KilledRun | None = None
        self._deaths: asyncio.Queue[Death] = asyncio.Queue()
        self.stopping = asyncio.Event()
        self.ready = asyncio.Event()

    def stop(self) -> None:
        """Start to stop everything."""
        self.stopping.set()

    async def run(self) -> None:
        """Start everything and keep it running until `stop`. Raises Failure if it cannot start."""
        optional_packages.check(self._settings)
        async with self._sole_owner(), self._database():
            await self._note_killed()
            tasks = [asyncio.create_task(self._keep(child)) for child in self._children]
            tasks.append(asyncio.create_task(self._note_deaths()))
            keeper = asyncio.create_task(self._keep_database())
            self.ready.set()
            await self.stopping.wait()
            log.info("stopping")
            await self._stop_children()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await keeper  # not cancelled, because a server that is starting cannot be stopped yet
        log.info("stopped")

    @asynccontextmanager
    async def _sole_owner(self) -> AsyncIterator[None]:
        """Hold the data directory's lock, and kill processes that a killed predecessor left running."""
        with owned(self._settings, self._command):
            self._killed = last_run.begin(self._settings.data_dir)
            await self._kill_leftovers()
            try:
                yield
            finally:
                await self._kill_leftovers()
                self.ended()

    def ended(self) -> None:
        """Note that this run ends as it was told to."""
        last_run.end(self._settings.data_dir)

    async def _kill_leftovers(self) -> None:
        """Kill every part of this installation and its engine, which has its own mark."""
        while pids := leftovers.find(self._settings).processes:
            log.warning("leftovers.killed", pids=pids)
            processes.kill(pids)
            await asyncio.sleep(0.1)

    @asynccontextmanager
    async def _database(self) -> AsyncIterator[None]:
        """Start and migrate the database, and create partitions. An embedded database is stopped at the end."""
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
        """Restart the embedded server whenever it does not answer, until `stop`. Its end is seen by a connection to it."""
        down_since: float | None = None
        while not self._settings.database_url and not self.stopping.is_set():
            try:
                url = embedded.database_url(self._settings)
                async with await WatchedConnection.to(url, application_name="slackwater up") as conn:
                    await conn.execute("select 1")
                    if down_since is not None:
                        log.info("database.restarted", seconds=round(clock.monotonic() - down_since, 1))
                        down_since = None
                    while await direct.heard(conn, self.stopping):
                        await conn.execute("select 1")
            except psycopg.OperationalError:
                if down_since is None:
                    down_since = await self._end_of_database(url)
                if down_since is not None:
                    await self._restart_database()

    async def _end_of_database(self, url: str) -> float | None:
        """When the server was found away; None: a new connection shows that only ours was closed."""
        began = clock.monotonic()
        try:
            await (await psycopg.AsyncConnection.connect(url)).close()
        except psycopg.OperationalError as error:
            log.warning("database.down", error=cause(error))
            return began
        return None

    async def _restart_database(self) -> None:
        """Start the server. It may say that it runs while the last processes of the one before still end."""
        pause = 0.1
        try:
            await asyncio.to_thread(embedded.start, self._settings)
        except Exception as failure:
            log.error("database.restart_failed", error=cause(failure))
            pause = 1.0
        await self._stop_requested(within=pause)

    async def _stop_requested(self, within: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), within)
        return self.stopping.is_set()

    async def _keep(self, child: Child) -> None:
        """Keep one part running until `stop`. Restart it with backoff when it dies."""
        pause = _BACKOFF_SECONDS[0]
        while not self.stopping.is_set():
            began = clock.monotonic()
            child.process = await self._start(child)
            log.debug("part.started", name=child.name, pid=child.process.pid)
            code = await self._end_of(child, child.process)
            if self.stopping.is_set():
                return
            child.deaths += 1
            pause = (
                _BACKOFF_SECONDS[0]
                if clock.monotonic() - began > _STEADY_SECONDS
                else min(pause * 2, _BACKOFF_SECONDS[1])
            )
            log.error(
                "part.died", name=child.name, exit_code=code, restart_in_seconds=pause, **self._last_words(child, code)
            )
            self._deaths.put_nowait(Death(child.name, code, clock.now()))
            await asyncio.sleep(pause)

    def _last_words(self, child: Child, code: int) -> dict[str, str]:
        """What a part that ended by itself wrote last, and where the rest is."""
        file = log_file(self._settings.data_dir, child.name)
        said = last_error(file) if code > 0 and self._output is None else ""
        return {"error": said, "log": str(file)} if said else {}

    async def _end_of(self, child: Child, process: asyncio.subprocess.Process) -> int:
        """The exit code of a part. It is killed if it lives, but gives no sign of it for too many looks. They are counted, not
        timed, since this process may have stood still itself. Where its file cannot be written, as on a full disk, it is left.
        """
        looks, last = 0, None
        while child.name in _WATCHED:
            with suppress(TimeoutError):
                return await asyncio.wait_for(process.wait(), _LOOK_SECONDS)
            before, last = last, self._last_sign(child)
            looks = looks + 1 if last is not None and last == before else 0
            if looks * _LOOK_SECONDS >= life_signs.STILL_SECONDS:
                log.error("part.stands_still", name=child.name, pid=process.pid)
                processes.signal_group(process.pid, signal.SIGKILL)
                break
        return await process.wait()

    def _signs_of(self, child: Child) -> Path:
        return self._settings.data_dir / "logs" / f"{child.name}.alive"

    def _last_sign(self, child: Child) -> int | None:
        try:
            return self._signs_of(child).stat().st_mtime_ns
        except OSError:
            return None

    async def _note_deaths(self) -> None:
        """Write each death to the timeline, as soon as the database takes it."""
        while True:
            death = await self._deaths.get()
            until_noted = retry(retry=retry_if_result(operator.not_), wait=wait_fixed(_NOTE_PAUSE_SECONDS))
            await until_noted(self._noted)(death.note)

    async def _note_killed(self) -> None:
        """Write to the timeline that the run before this one was killed. Without the database it is not noted."""
        if self._killed is not None:
            await self._noted(self._killed.note)

    async def _noted(self, note: Callable[[Connection], Awaitable[None]]) -> bool:
        with suppress(TimeoutError, psycopg.Error, *TRANSIENT):
            async with (
                asyncio.timeout(_NOTE_SECONDS),
                Database(embedded.direct_url(self._settings), size=1) as database,
                database.relaxed() as conn,
            ):
                await note(conn)
                return True
        return False

    async def _start(self, child: Child) -> asyncio.subprocess.Process:
        signs = self._signs_of(child)
        with suppress(OSError):
            signs.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            signs.touch(mode=0o600)
        with self._output_of(child) as output:
            return await asyncio.create_subprocess_exec(
                *processes.python_module(child.module),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**self._environment, PART: child.name, life_signs.FILE: str(signs)},
                start_new_session=True,
                preexec_fn=processes.dies_with_parent(),
            )

    def _output_of(self, child: Child) -> AbstractContextManager[IO[Any]]:
        if self._output is not None:
            return nullcontext(self._output)
        file = log_file(self._settings.data_dir, child.name)
        file.parent.mkdir(parents=True, exist_ok=True)
        return file.open("ab")  # opened for append, because it is rotated while it is written

    def deaths(self, part: str) -> int:
        """The number of times a part has died since the start."""
        return next(child.deaths for child in self._children if child.name == part)

    async def _stop_children(self) -> None:
        """Send SIGTERM to all parts, wait while the GPU worker drains, then send SIGKILL to those that remain."""
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
    """Start the embedded PostgreSQL. Raises Failure."""
    try:
        await asyncio.to_thread(embedded.start, settings)
    except NotInstalled as missing:
        raise Failure(str(missing), missing.remedy) from missing
    except Exception as error:  # the package raises many kinds of errors
        reason = (str(error).strip().splitlines() or [repr(error)])[-1]
        remedy = f"Its own log is {embedded.log_file(settings)}. `slackwater doctor` checks the machine."
        raise Failure(f"The embedded PostgreSQL did not start: {reason}", remedy) from error


async def _migrate(settings: Settings) -> None:
    """Migrate the schema and create today's partitions. Raises Failure."""
    process = await asyncio.create_subprocess_exec(
        *processes.python_module("app.cli.preparation"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env=child_environment(settings, {}),
        start_new_session=True,  # Ctrl-C lets it finish
        preexec_fn=processes.dies_with_parent(),
    )
    told, _ = await process.communicate()
    if process.returncode == 0:
        return
    with suppress(ValueError):
        raise Failure(*json.loads(told))
    raise Failure(f"The database could not be prepared: exit code {process.returncode}.", "Run `slackwater doctor`.")


def on_signals(supervisor: Supervisor) -> None:
    """Stop the supervisor on SIGINT or SIGTERM. A second signal ends the process at once."""
    loop = asyncio.get_running_loop()
    stopping = False

    def handle() -> None:
        nonlocal stopping
        if stopping:
            supervisor.ended()
            os._exit(130)
        stopping = True
        supervisor.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, handle)
