"""Does duties on one event loop, each in its turn and within its time limit."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import psycopg
import structlog
from psycopg_pool import PoolTimeout

from app import clock
from app.audit.problems import Problems
from app.causes import cause
from app.changes import service as changes
from app.db import direct, session_settings
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.duties import standing
from app.duties.schedule import BY_NAME, Duty
from app.duties.turn import SILENCE_SECONDS, Turn, turn
from app.errors import KeysUnavailable, StorageError, StoreNotShared
from app.sentences import ended
from app.settings import Settings
from workers import metrics_page
from workers.celery_shell.loop_thread import OnLoop
from workers.maintenance import duties
from workers.maintenance.audit import AuditKeeper
from workers.maintenance.metrics import Metrics
from workers.maintenance.work import PART, HeldUp, Work

_EXPECTED = (psycopg.Error, PoolTimeout, StorageError, StoreNotShared, KeysUnavailable, HeldUp, TimeoutError)
_LOOK_SECONDS = 5.0
_PORT_VARIABLE = "SLACKWATER_MAINTENANCE_METRICS_PORT"

log = structlog.get_logger("maintenance")


class Worker(OnLoop):
    """The loop and what the duties work with. `do` and `stop` may be called from any other thread."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self.metrics = Metrics()
        self._database = Database.of(settings, PART)
        audit = AuditKeeper(self._database, settings, Problems(self.metrics.audit_problems))
        self._work = Work(self._database, settings, audit)
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def do(self, name: str) -> None:
        """Do a duty, if it was asked for and nobody else does it. Returns when it has ended, however it has ended."""
        if name in BY_NAME:  # else it is of another version
            self._thread.call(self.attempt(BY_NAME[name]))

    def stop(self) -> None:
        """Leave what is not done to the next worker."""
        self._thread.loop.call_soon_threadsafe(self._stopping.set)

    async def attempt(self, duty: Duty, act: Callable[[Work], Awaitable[None]] | None = None) -> None:
        """As `do`, on the loop. `act`: what is done, if not that which is known by the duty's name."""
        try:
            async with self._database.relaxed() as conn:
                if not await standing.is_asked(conn, duty.name):
                    return
            async with turn(self._work.direct_url, duty) as mine:
                if mine is not None:
                    with self.metrics.running.track_inprogress():
                        await self._take(mine, duty, act or duties.BY_NAME[duty.name])
        except (TimeoutError, *TRANSIENT) as error:  # nothing was noted, so the duty is asked for again
            log.warning("duty.lost", duty=duty.name, error=cause(error))

    async def _take(self, mine: Turn, duty: Duty, act: Callable[[Work], Awaitable[None]]) -> None:
        began = clock.monotonic()
        try:
            finished = await self._finished(mine, duty, act)
        except Exception as error:
            words = f"{type(error).__name__}: {cause(error.__cause__ or error)}"
            log.warning("duty.failed", duty=duty.name, error=words, exc_info=not isinstance(error, _EXPECTED))
            self.metrics.runs.labels(duty.name, "failed").inc()
            await mine.fail(words)
            return
        seconds = clock.monotonic() - began
        self.metrics.runs.labels(duty.name, "done" if finished else "left").inc()
        self.metrics.seconds.observe(seconds)
        await (mine.succeed(seconds) if finished else mine.leave())
        log.debug("duty.done" if finished else "duty.left", duty=duty.name, seconds=round(seconds, 3))

    async def _finished(self, mine: Turn, duty: Duty, act: Callable[[Work], Awaitable[None]]) -> bool:
        """Whether it was done; False: this worker ends. Raises what the duty raises; TimeoutError at the limit;
        psycopg.OperationalError or TimeoutError if the turn is lost.
        """
        doing = asyncio.ensure_future(act(self._work))
        keeping, stopping = asyncio.create_task(mine.keep()), asyncio.create_task(self._stopping.wait())
        tasks: set[asyncio.Future[Any]] = {doing, keeping, stopping}
        try:
            await asyncio.wait(tasks, timeout=duty.limit_seconds, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                await doing
                return True
            if keeping.done():
                await keeping
            if not stopping.done():
                raise TimeoutError(ended(f"It was not done within {duty.limit_seconds:g} s"))
            return False
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _open(self) -> None:
        await self._database.open()
        await session_settings.require_at_start(self._database)
        await self._require_direct()
        await changes.started(self._database, PART)
        settings = self._settings
        page = metrics_page.serve(
            settings.host, settings.maintenance_metrics_port, _PORT_VARIABLE, self.metrics.exposition
        )
        self._tasks = [asyncio.create_task(page), asyncio.create_task(self._stay_connected())]

    async def _stay_connected(self) -> None:
        """The pool notices the loss of a connection only where one is used, which may be a minute later, and `GET /status` calls
        a worker without one away.
        """
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            with suppress(TimeoutError, *TRANSIENT):
                async with self._database.relaxed():
                    pass

    async def _require_direct(self) -> None:
        """Raise BehindPooler unless locks would last. Without the database nothing is known yet."""
        with suppress(TimeoutError, *TRANSIENT):
            async with (
                asyncio.timeout(SILENCE_SECONDS),
                await psycopg.AsyncConnection.connect(self._work.direct_url) as conn,
            ):
                await direct.require(conn)

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._database.close()
