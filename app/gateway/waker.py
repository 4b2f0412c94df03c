"""Wakes a few workers when work comes for their engines. The others hear of it with their heartbeats."""

import asyncio
import random

import structlog

from app.db.transient_errors import TRANSIENT
from app.gateway.announcer import Announcer
from app.gateway.engine_directory import EngineDirectory
from app.queue import wakes

MOST_WOKEN = 8  # by one submit, however many chunks it has, so that a fleet does not claim all at once

log = structlog.get_logger("gateway")


class Waker:
    """Listens to `app.queue.wakes`, and tells workers over the lines on which they hear of synchronous requests.

    Use as an async context manager.
    """

    def __init__(self, directory: EngineDirectory, announcer: Announcer) -> None:
        self._directory = directory
        self._announcer = announcer
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Waker":
        wakes.listen(self.wake)
        return self

    async def __aexit__(self, *exc: object) -> None:
        wakes.forget(self.wake)
        for task in self._tasks:
            task.cancel()

    def wake(self, model: str, chunks: int) -> None:
        """Wake up to `chunks` workers that wait for work of this model, chosen at random. Does not wait."""
        task = asyncio.create_task(self._wake(model, chunks))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wake(self, model: str, chunks: int) -> None:
        try:
            served = await self._directory.served(model)
        except TRANSIENT as error:
            log.debug("database.unavailable", verb="wake", error=str(error).strip())
            return
        hungry = [engine.arrival_url for engine in served.ready.values() if engine.hungry]
        for url in random.sample(hungry, min(chunks, MOST_WOKEN, len(hungry))):
            self._announcer.wake(url)
