"""The FIFO queue of synchronous requests that wait because every engine of their model is full or starting.

The first request checks again when a request of this gateway ends. It also checks every RECHECK_SECONDS, because requests
of other gateways end too, and engines become ready.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from app import clock
from app.gateway.metrics import QUEUED, SYNC

RECHECK_SECONDS = 0.25

Place = TypeVar("Place")
Find = Callable[[], Awaitable[Sequence[Place]]]
Patience = Callable[[], Awaitable[float]]


class WaitQueue:
    """One gateway's queues: for each served model one for new requests, and one for requests whose first engine was lost."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, bool], deque[asyncio.Event]] = {}

    async def wait(self, model: str, find: Find[Place], patience: Patience, *, again: bool = False) -> Sequence[Place]:
        """The result of `find`, as soon as it is not empty and this request is the first in the queue; empty after the timeout.

        `patience` returns the timeout in seconds. It is called only if the request has to wait.

        Nothing else runs between the call of `find` and the return, so the engines found still have room. A request that
        comes `again` may not use every engine, so it waits in a separate queue.
        """
        queue = self._waiting.setdefault((model, again), deque())
        if not queue and (found := await find()):
            return found
        if (seconds := await patience()) <= 0:
            return ()
        deadline, turn = clock.monotonic() + seconds, asyncio.Event()
        queue.append(turn)
        QUEUED.labels(SYNC, model).inc()
        try:
            while (left := deadline - clock.monotonic()) > 0:
                if queue[0] is turn and (found := await find()):
                    return found
                try:
                    async with asyncio.timeout(min(left, RECHECK_SECONDS)):
                        await turn.wait()
                except TimeoutError:
                    pass
                turn.clear()
            return ()
        finally:
            QUEUED.labels(SYNC, model).dec()
            queue.remove(turn)
            self.wake(model)

    def wake(self, model: str) -> None:
        """Let the first waiting requests of a model check again, after a request has left an engine or the queue."""
        for again in (True, False):
            if queue := self._waiting.get((model, again)):
                queue[0].set()
