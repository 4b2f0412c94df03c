"""Counters that are read now and then, and their growth between any two moments."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import httpx
import numpy as np
import psycopg


class Progress:
    """Readings of counters. `read` returns them by name; a reading that fails is left out."""

    def __init__(self, read: Callable[[], Awaitable[dict[str, float]]]) -> None:
        self.rows: list[tuple[float, dict[str, float]]] = []  # (monotonic seconds, counters)
        self._read = read

    async def sample(self) -> None:
        """Read the counters once."""
        self.rows.append((monotonic(), await self._read()))

    @asynccontextmanager
    async def watched(self, seconds: float | None) -> AsyncIterator[None]:
        """Read them at the beginning, at the end and, unless it is None, each `seconds` between."""
        await self.sample()
        task = asyncio.create_task(self._each(seconds)) if seconds else None
        try:
            yield
        finally:
            if task:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self.sample()

    async def _each(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            with contextlib.suppress(httpx.TransportError, psycopg.Error):
                await self.sample()

    def grown(self, name: str, begin: float, end: float) -> float:
        """The growth of a counter between two moments, interpolated between the readings; 0 if it does not exist."""
        return grown(self.rows, name, begin, end)


def grown(rows: list[tuple[float, dict[str, Any]]], name: str, begin: float, end: float) -> float:
    """The growth of counter `name` between two moments, interpolated between the rows (seconds, counters)."""
    times, values = [at for at, _ in rows], [float(counters.get(name, 0)) for _, counters in rows]
    first, last = np.interp([begin, end], times, values)
    return float(last - first)
