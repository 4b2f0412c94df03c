"""Runs our async code for Celery's threads, in an event loop that has its own thread."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class LoopThread:
    """The loop and its thread, which `start` starts and `stop` ends."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="loop", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for its result. Works from every other thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def stop(self) -> None:
        """End the loop, then the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


class OnLoop(ABC):
    """What is open on a loop of its own while a `with` block runs."""

    def __init__(self) -> None:
        self._thread = LoopThread()

    def __enter__(self) -> Self:
        self._thread.start()
        self._thread.call(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.call(self._close())
        self._thread.stop()

    @abstractmethod
    async def _open(self) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...
