"""A cached answer of the database that stays valid while the database does not answer (as `stale-if-error` of RFC 5861)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from app import clock
from app.db.transient_errors import TRANSIENT

PATIENCE_SECONDS = 0.1  # a refresh that takes longer counts as no answer
MAX_STALE_SECONDS = 600.0  # without an answer, the last one stays valid for this long

T = TypeVar("T")
Ask = Callable[[], Awaitable[T]]


class StaleIfError(Generic[T]):
    """One cached answer. Concurrent callers share one query."""

    def __init__(self) -> None:
        self._cached: tuple[float, T] | None = None  # the start of the query, and its answer
        self._query: asyncio.Task[T] | None = None
        self._started_at = 0.0

    @property
    def last(self) -> T | None:
        """The last answer, whatever its age. None: there was none."""
        return self._cached[1] if self._cached is not None else None

    async def get(self, ask: Ask[T], fresh_seconds: float) -> T:
        """The answer, queried again if it is older than `fresh_seconds`. Raises `ask`'s error if no valid answer is left."""
        now = clock.monotonic()
        if self._cached is not None and now - self._cached[0] < fresh_seconds:
            return self._cached[1]
        if self._query is None:
            self._started_at = now
            self._query = asyncio.create_task(self._run(ask))
            self._query.add_done_callback(_retrieve_exception)
        answer = asyncio.shield(self._query)
        if self._cached is None or now - self._cached[0] > MAX_STALE_SECONDS:
            return await answer
        try:
            async with asyncio.timeout(self._started_at + PATIENCE_SECONDS - now):
                return await answer
        except (TimeoutError, *TRANSIENT):
            return self._cached[1]

    async def _run(self, ask: Ask[T]) -> T:
        try:
            answer = await ask()
        finally:
            self._query = None
        self._cached = self._started_at, answer
        return answer


def _retrieve_exception(task: asyncio.Task[T]) -> None:
    """If no caller waits any more, asyncio would log the exception as never retrieved."""
    if not task.cancelled():
        task.exception()
