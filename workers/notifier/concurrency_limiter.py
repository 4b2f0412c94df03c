"""Room for attempts at once, of which receivers that keep silent cannot take all."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

SLOW_SECONDS = 1.0
PARKED = 8
"""So many times as many attempts may wait for slow receivers."""


class ConcurrencyLimiter:
    """`count` attempts at once. One that has waited for a second gives its place up: it costs a socket and nothing else.

    So receivers that hang take places from the others for a second, and only until far more of them hang than are served.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._park = PARKED * count
        self._changed = asyncio.Event()

    async def free(self) -> int:
        """How many there are now, once there is one."""
        while self._free <= 0:
            self._changed.clear()
            await self._changed.wait()
        return self._free

    def take(self, count: int) -> None:
        """For attempts that begin now; each then enters `taken`."""
        self._free -= count

    @contextmanager
    def taken(self) -> Iterator[None]:
        """One attempt, in a place that was taken for it."""
        parked = False

        def park() -> None:
            nonlocal parked
            if self._park > 0:
                parked = True
                self._park -= 1
                self._give_back()

        timer = asyncio.get_running_loop().call_later(SLOW_SECONDS, park)
        try:
            yield
        finally:
            timer.cancel()
            if parked:
                self._park += 1
            else:
                self._give_back()

    def _give_back(self) -> None:
        self._free += 1
        self._changed.set()
