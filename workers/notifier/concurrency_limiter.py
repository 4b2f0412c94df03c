"""Limits the attempts in flight, so that receivers that do not respond cannot take all places."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

SLOW_SECONDS = 1.0
PARKED = 8
"""Attempts that may wait for slow receivers, as a multiple of `count`."""


class ConcurrencyLimiter:
    """Allows `count` attempts at once. An attempt that takes longer than a second is parked and frees its place.

    A parked attempt costs only a socket. At most `PARKED * count` attempts are parked; beyond that a slow one keeps its place.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._park = PARKED * count
        self._changed = asyncio.Event()

    async def free(self) -> int:
        """Wait until a place is free. Returns how many are."""
        while self._free <= 0:
            self._changed.clear()
            await self._changed.wait()
        return self._free

    def take(self, count: int) -> None:
        """Reserve places for attempts that start now. Each attempt then enters `taken`."""
        self._free -= count

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Run one attempt in a reserved place, and free the place at its end or when it is parked."""
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
