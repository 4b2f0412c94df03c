"""Which engines this process controls: the one of its settings, or free ones of the list in `SLACKWATER_ENGINES`.

Each engine has a worker of its own. The list is looked at every few seconds. An engine of it is free if no worker with a live
lease controls it, in whatever process. While there is a notice that the machine will go, all workers hand back their work.
"""

import asyncio
import os
import random
from dataclasses import dataclass, replace

import psycopg
import structlog
from psycopg_pool import PoolTimeout

from app import clock, life_signs
from app.causes import cause
from app.db.transient_errors import TRANSIENT
from app.engines import discovery, engine_list
from app.engines import service as engines
from app.engines.discovery import Resolve
from app.engines.engine_list import EngineListError, ListedEngine
from app.errors import StoreNotShared
from app.files import shared_storage
from app.settings import Settings
from app.user_errors import Failure, explained
from workers.gpu.attached_engine import AttachedEngine
from workers.gpu.ending import Ending, first_of
from workers.gpu.failed_engines import FailedEngines
from workers.gpu.managed_engine import ManagedEngine
from workers.gpu.model_adoption import model_of
from workers.gpu.result_writer import DATABASE_PAUSE_SECONDS
from workers.gpu.worker_process import WorkerProcess

log = structlog.get_logger()


@dataclass
class _Post:
    """An engine and its worker. `missed`: looks in a row at a list without it."""

    engine: ListedEngine
    ending: Ending
    task: "asyncio.Task[None]"
    missed: int = 0


class Roster:
    """Starts and ends the workers of a process."""

    def __init__(self, settings: Settings, process: WorkerProcess, resolve: Resolve = discovery.addresses) -> None:
        self._settings = settings
        self._process = process
        self._resolve = resolve
        self._tuning = process.tuning
        self._posts: dict[str, _Post] = {}
        self._tried: dict[str, float] = {}  # by engine: the second when a worker was last started
        self._failures = FailedEngines(self._tuning.failure_seconds)
        self._changed = asyncio.Event()
        self._failed = asyncio.Event()
        self._error: BaseException | None = None
        self._noticed = self._warned = False
        self._full_looks = 0
        self._trouble = ""

    async def run(self, ending: Ending) -> None:
        """Until told to end, and until all workers have ended.

        Raises EngineListError if the list names no engine at the start, and what makes the process useless: any error of the one
        engine of the settings, StoreNotShared of any.
        """
        if self._settings.engines:
            await discovery.find(self._settings.engines, self._resolve)
            self._process.stand_by()
        self._look_for_notice()
        notice, looks = asyncio.create_task(self._watch_notice()), asyncio.create_task(self._watch_list())
        try:
            await first_of(ending.finishing.wait(), self._failed.wait(), looks)
            if looks.done():
                looks.result()
            await self._end(ending)
        finally:
            tasks = [notice, looks, *(post.task for post in self._posts.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._error is not None:
            raise self._error

    async def _end(self, ending: Ending) -> None:
        """Let every worker finish, or hand back once `ending` says so."""
        for post in self._posts.values():
            post.ending.finish()
        tasks = [post.task for post in self._posts.values()]
        if tasks:
            await first_of(asyncio.wait(tasks), ending.returning.wait())
            self._hand_back()
            await asyncio.wait(tasks)

    def _hand_back(self) -> None:
        for post in self._posts.values():
            post.ending.hand_back()

    async def _watch_notice(self) -> None:
        while self._settings.notice_file:
            self._look_for_notice()
            await asyncio.sleep(self._tuning.notice_seconds)

    def _look_for_notice(self) -> None:
        """While the notice is there, all workers hand back, and none starts."""
        file = self._settings.notice_file
        noticed = bool(file) and os.path.exists(file)
        if noticed != self._noticed:
            log.warning("worker.notice" if noticed else "worker.notice_gone", file=file)
            self._noticed = noticed
            self._changed.set()
        if noticed:
            self._hand_back()

    async def _watch_list(self) -> None:
        with life_signs.turning() as turn:
            while True:
                turn()
                self._changed.clear()
                if not self._noticed:
                    await self._look()
                await first_of(self._changed.wait(), seconds=self._tuning.list_seconds)

    async def _look(self) -> None:
        """Let engines go that are no longer in the list, and start workers for free ones."""
        if not self._settings.engines:
            name = self._settings.engine_name
            if name not in self._posts:
                self._start(self._settings, ListedEngine(self._settings.engine_url, name))
            return
        try:
            listed = await discovery.find(self._settings.engines, self._resolve)
            self._let_go(listed)
            for engine in await self._choice(listed):
                self._start(engine.settings(self._settings), engine)
            self._trouble = ""
        except EngineListError as error:
            self._log_trouble("engines.not_listed", str(error), remedy=error.remedy)
        except (TimeoutError, psycopg.Error, *TRANSIENT) as error:
            self._log_trouble("database.unavailable", cause(error), verb="find")

    def _let_go(self, listed: list[ListedEngine]) -> None:
        """End the workers of engines that are described otherwise now, or were missing several times."""
        found = {engine.url: engine for engine in listed}
        patience = self._tuning.missed_looks if discovery.of_dns(self._settings.engines) else 1
        for name, post in self._posts.items():
            engine = found.get(post.engine.url)
            post.missed = post.missed + 1 if engine is None else 0
            changed = engine is not None and replace(engine, name=engine.name or name) != post.engine
            if (changed or post.missed >= patience) and not post.ending.finishing.is_set():
                log.info("engine.let_go", engine=name, url=post.engine.url, changed=changed)
                post.ending.finish()

    async def _choice(self, listed: list[ListedEngine]) -> list[ListedEngine]:
        """The free engines to start a worker for, as many as there is room. Those that were tried longest ago come first."""
        own = {post.engine.url: name for name, post in self._posts.items()}
        room = self._settings.engines_max - len(own)
        self._full_looks = 0 if room > 0 else self._full_looks + 1
        seldom = room <= 0 and self._full_looks % self._tuning.full_looks
        if seldom or all(engine.url in own for engine in listed):
            return []
        free = await self._free(listed, own)
        if room <= 0:
            self._warn_of(free)
            return []
        now = clock.monotonic()
        free = [engine for engine in free if not self._failures.rests(engine.name, now)]
        free.sort(key=lambda engine: (self._tried.get(engine.name, 0.0), random.random()))  # noqa: S311
        return free[:room]

    async def _free(self, listed: list[ListedEngine], own: dict[str, str]) -> list[ListedEngine]:
        """Those that no live worker controls, with their names. `own`: the names of this process's engines, by URL."""
        prefix = None
        if discovery.of_dns(self._settings.engines):
            prefix = engine_list.name_prefix(engine_list.dns_query(self._settings.engines)[0])
        async with self._process.database.relaxed() as conn:
            known = await engines.known(conn, listed, prefix)
        if prefix is not None:
            names = engine_list.named([engine.url for engine in listed], known, prefix, own)
            listed = [replace(engine, name=names[engine.url]) for engine in listed]
        held = {row.name for row in known if row.held} | self._posts.keys()
        held_urls = {row.url for row in known if row.held}
        return [engine for engine in listed if engine.name not in held and engine.url not in held_urls]

    def _warn_of(self, free: list[ListedEngine]) -> None:
        """Once, while this process is full and there are engines without a worker."""
        if free and not self._warned:
            remedy = "start more worker processes with this list, or raise SLACKWATER_ENGINES_MAX"
            log.warning("engines.without_worker", engines=len(free), first=free[0].name, remedy=remedy)
        self._warned = bool(free)

    def _start(self, settings: Settings, engine: ListedEngine) -> None:
        ending, name = Ending(), engine.name
        task = asyncio.create_task(self._work(settings, ending))
        self._posts[name] = _Post(engine, ending, task)
        self._tried[name] = clock.monotonic()
        task.add_done_callback(lambda task: self._ended(name, task))

    async def _work(self, settings: Settings, ending: Ending) -> None:
        """The worker of one engine, from the question what it serves to its end."""
        several = bool(self._settings.engines)
        if several:
            structlog.contextvars.bind_contextvars(engine=settings.engine_name)
        database = self._process.database
        try:
            # One of several that does not answer does not keep its place: another may.
            async with asyncio.timeout(self._tuning.answer_seconds if several else None):
                model = await model_of(settings, database, ending.finishing, self._tuning, answering=several)
        except TimeoutError:
            return
        if model is None:
            return
        await self._require_bodies(settings)
        engine = (
            AttachedEngine(settings) if settings.engine_url else ManagedEngine(settings, model, tuning=self._tuning)
        )
        with self._process.worker(settings, model, engine, stands_by=not several) as worker:
            try:
                await worker.run(ending)
            finally:
                if worker.has_controlled:
                    self._failures.worked(settings.engine_name)

    async def _require_bodies(self, settings: Settings) -> None:
        """Check the object store; again if the database goes away meanwhile. Raises StoreNotShared, and PoolTimeout where there
        is no database.
        """
        while True:
            try:
                return await shared_storage.require_bodies(
                    self._process.database, settings, f"gpu-worker {settings.engine_name}"
                )
            except PoolTimeout:
                raise
            except TRANSIENT as error:
                log.warning("database.unavailable", verb="store", error=cause(error))
                await asyncio.sleep(DATABASE_PAUSE_SECONDS)

    def _ended(self, name: str, task: "asyncio.Task[None]") -> None:
        """A worker has ended. One of several that failed starts again after a pause."""
        del self._posts[name]
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if not self._settings.engines or isinstance(error, StoreNotShared):
            self._error = error
            self._failed.set()
            return
        self._note_failure(name, error)

    def _note_failure(self, name: str, error: BaseException) -> None:
        """Remember it, and log it once for each cause, until the engine has worked again."""
        now = clock.monotonic()
        try:
            with explained():
                raise error
        except Failure as failure:
            if self._failures.failed(name, failure.problem, now):
                log.error("worker.failed", engine=name, error=failure.problem, remedy=failure.remedy)
        except BaseException as unknown:
            if self._failures.failed(name, repr(unknown), now):
                log.error("worker.failed", engine=name, exc_info=unknown)

    def _log_trouble(self, event: str, error: str, **more: str) -> None:
        """Once, until the list can be read again."""
        if error != self._trouble:
            log.error(event, error=error, **more)
        self._trouble = error
