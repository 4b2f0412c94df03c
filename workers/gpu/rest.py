"""The rest of a worker: while its engine has nothing to do, what is looked at again and again is looked at once a second.

Whoever brings work or sees some ends the rest, and all looks are taken at once.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from math import inf

from app import clock

CALM_SECONDS = 5.0  # without work, callers or faults before it begins
LOOK_SECONDS = 1.0


class Rest:
    """It begins by itself, CALM_SECONDS after the last `stir`."""

    def __init__(self) -> None:
        self._stirred_at = clock.monotonic()
        self._end = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []

    @property
    def lasts(self) -> bool:
        """Whether it has begun and not ended."""
        return clock.monotonic() - self._stirred_at >= CALM_SECONDS

    def on_end(self, listener: Callable[[], None]) -> None:
        """Call this at the end of every rest."""
        self._listeners.append(listener)

    def stir(self) -> None:
        """There is something to do. Ends the rest."""
        ends, self._stirred_at = self.lasts, clock.monotonic()
        if ends:
            self._end.set()
            self._end = asyncio.Event()
            for listener in self._listeners:
                listener()

    def length(self, seconds: float, most: float = inf) -> float:
        """How long a pause of so many seconds is now."""
        return min(max(seconds, LOOK_SECONDS), most) if self.lasts else seconds

    async def pause(self, seconds: float, most: float = inf) -> None:
        """Wait so long, or until the end of the rest."""
        if not self.lasts:
            await asyncio.sleep(seconds)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self.length(seconds, most)):
                await self._end.wait()
