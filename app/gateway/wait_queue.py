"""Where synchronous callers wait, first come first served, while every engine of their model is full or coming back.

Woken when a request ends, and now and then, since other gateways' requests end too and engines come up.
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


class WaitQueue:
    """One gateway's lines, by served model: one of those who come, one of those whose first engine was lost."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, bool], deque[asyncio.Event]] = {}

    async def wait(
        self, model: str, find: Find[Place], patience_seconds: float, *, again: bool = False
    ) -> Sequence[Place]:
        """What `find` finds, as soon as it is something and nobody has waited longer; nothing once patience is over.

        Between the look that finds a place and the return nothing else runs, so that the place can be taken. Who comes
        `again` may not use every place, and so waits apart.
        """
        line = self._waiting.setdefault((model, again), deque())
        if not line and (found := await find()):
            return found
        if patience_seconds <= 0:
            return ()
        deadline, turn = clock.monotonic() + patience_seconds, asyncio.Event()
        line.append(turn)
        QUEUED.labels(SYNC, model).inc()
        try:
            while (left := deadline - clock.monotonic()) > 0:
                if line[0] is turn and (found := await find()):
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
            line.remove(turn)
            self.wake(model)

    def wake(self, model: str) -> None:
        """A request has left one of the model's engines, or its place in the line."""
        for again in (True, False):
            if line := self._waiting.get((model, again)):
                line[0].set()
