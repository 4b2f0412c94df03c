"""What the database said a moment ago, which goes on being taken for true while the database does not answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from app import clock
from app.db.transient_errors import TRANSIENT

PATIENCE_SECONDS = 0.1  # a database that takes longer to say it again counts as away
FAITH_SECONDS = 600.0  # while it is away, what it said last is believed for so long

T = TypeVar("T")
Ask = Callable[[], Awaitable[T]]


class StaleIfError(Generic[T]):
    """One answer. However many want it, it is asked for once at a time."""

    def __init__(self) -> None:
        self._said: tuple[float, T] | None = None  # when it was asked for, and the answer
        self._asking: asyncio.Task[T] | None = None
        self._asked_at = 0.0

    @property
    def last(self) -> T | None:
        """What was said last, however long ago; None if nothing was."""
        return self._said[1] if self._said is not None else None

    async def get(self, ask: Ask[T], fresh_seconds: float) -> T:
        """The answer, asked for again if it is older than `fresh_seconds`. Raises as `ask` does if there is none to believe."""
        now = clock.monotonic()
        if self._said is not None and now - self._said[0] < fresh_seconds:
            return self._said[1]
        if self._asking is None:
            self._asked_at = now
            self._asking = asyncio.create_task(self._learn(ask))
            self._asking.add_done_callback(_looked_at)
        answer = asyncio.shield(self._asking)
        if self._said is None or now - self._said[0] > FAITH_SECONDS:
            return await answer
        try:
            async with asyncio.timeout(self._asked_at + PATIENCE_SECONDS - now):
                return await answer
        except (TimeoutError, *TRANSIENT):
            return self._said[1]

    async def _learn(self, ask: Ask[T]) -> T:
        try:
            answer = await ask()
        finally:
            self._asking = None
        self._said = self._asked_at, answer
        return answer


def _looked_at(task: asyncio.Task[T]) -> None:
    """Perhaps nobody waits for it any more: then its failure is nobody's."""
    if not task.cancelled():
        task.exception()
