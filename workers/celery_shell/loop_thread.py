"""Runs our async code for Celery's threads, in an event loop that has its own thread."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

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
