"""Wakes a few workers when work comes for their engines, and the steward. The others hear of it with their heartbeats."""

import asyncio
import random
from collections.abc import Coroutine, Mapping

import structlog

from app import clock
from app.causes import cause
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.gateway.announcer import Announcer
from app.gateway.engine_directory import EngineDirectory
from app.queue import wakes

MOST_WOKEN = 8  # by one submit, however many chunks it has, so that a fleet does not claim all at once
CALL_SECONDS = 1.0  # between two calls of the steward, which stays awake for longer

log = structlog.get_logger("gateway")


class Waker:
    """Listens to `app.queue.wakes`, and tells workers over the lines on which they hear of synchronous requests.

    Use as an async context manager.
    """

    def __init__(self, database: Database, directory: EngineDirectory, announcer: Announcer) -> None:
        self._database = database
        self._directory = directory
        self._announcer = announcer
        self._called_at = float("-inf")
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Waker":
        wakes.listen(self.wake)
        return self

    async def __aexit__(self, *exc: object) -> None:
        wakes.forget(self.wake)
        for task in self._tasks:
            task.cancel()

    def wake(self, chunks: Mapping[str, int]) -> None:
        """Wake the steward, and as many workers that wait for work of these models as there are chunks. Does not wait."""
        for model, count in chunks.items():
            self._begin(self._wake(model, count))
        if clock.monotonic() - self._called_at >= CALL_SECONDS:
            self._called_at = clock.monotonic()
            self._begin(self._call_steward())

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wake(self, model: str, chunks: int) -> None:
        try:
            served = await self._directory.served(model)
        except TRANSIENT as error:
            log.debug("database.unavailable", verb="wake", error=cause(error))
            return
        hungry = [engine.arrival_url for engine in served.ready.values() if engine.hungry]
        for url in random.sample(hungry, min(chunks, MOST_WOKEN, len(hungry))):
            self._announcer.wake(url)

    async def _call_steward(self) -> None:
        try:
            async with self._database.relaxed() as conn:
                await wakes.call_steward(conn)
        except TRANSIENT as error:
            log.debug("database.unavailable", verb="call", error=cause(error))
