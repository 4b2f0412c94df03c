"""Shared reads: however many pages are open, together they ask the database for the same thing about once a second."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from psycopg.errors import LockNotAvailable, QueryCanceled

from app import clock

FRESH_SECONDS = 1.0
TIRED_SECONDS = 5.0  # after two timeouts in a row
KEPT_SECONDS = 60.0
_TIMEOUTS = (QueryCanceled, LockNotAvailable)

T = TypeVar("T")


@dataclass(slots=True)
class _Look:
    at: float = float("-inf")
    value: Any = None
    timeouts: int = 0
    working: "asyncio.Task[Any] | None" = None
    asked_at: float = 0.0


class Looks:
    """The latest look at each thing. One that takes too long twice is repeated only every five seconds."""

    def __init__(self, *, fresh_seconds: float = FRESH_SECONDS) -> None:
        self._fresh = fresh_seconds
        self._known: dict[Hashable, _Look] = {}

    async def at(self, key: Hashable, look: Callable[[], Awaitable[T]], fresh_seconds: float | None = None) -> T:
        """What `look` returns, at most a second old, or as old as the caller says. Raises its errors."""
        fresh = self._fresh if fresh_seconds is None else fresh_seconds
        known = self._known.setdefault(key, _Look())
        known.asked_at = clock.monotonic()
        if known.working is None:
            age = clock.monotonic() - known.at
            if age < max(fresh, TIRED_SECONDS if known.timeouts > 1 else 0):
                return cast(T, known.value)
            self._forget()
            known.working = asyncio.create_task(self._renew(known, look))
        return cast(T, await asyncio.shield(known.working))

    def expire(self) -> None:
        """Look at everything anew: somebody has changed something, and shall see it at once."""
        for known in self._known.values():
            known.at = float("-inf")

    async def _renew(self, known: _Look, look: Callable[[], Awaitable[T]]) -> T:
        try:
            value = await look()
        except _TIMEOUTS:
            known.timeouts += 1
            if known.value is None:
                raise
            known.at = clock.monotonic()
            return cast(T, known.value)
        finally:
            known.working = None
        known.at, known.value, known.timeouts = clock.monotonic(), value, 0
        return value

    def _forget(self) -> None:
        """Drop what nobody has asked for lately."""
        before = clock.monotonic() - KEPT_SECONDS
        for key in [key for key, look in self._known.items() if look.asked_at < before and look.working is None]:
            del self._known[key]
