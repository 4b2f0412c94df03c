"""Time that a test advances: of `app.clock`, and of the event loop, so that sleeps and time-outs end as if it had passed.

What the database's `now()` decides is not moved; rows are dated back for that. A worker whose heartbeats the database answers
in real time needs a lease that is longer than what is let pass.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Self

import pytest

from app import clock as app_clock

_STEP = 0.05  # seconds; a loop with a pause runs as often as in real time
_REAL = 0.002  # for what a step has woken


class Clock:
    """A clock that is ahead of the real one."""

    def __init__(self) -> None:
        self._ahead = 0.0

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> Self:
        """The clock of this event loop, as long as it lives, and of `app.clock` until the test ends."""
        made = cls()
        loop.time = made.monotonic  # type: ignore[method-assign]
        monkeypatch.setattr(app_clock, "monotonic", made.monotonic)
        monkeypatch.setattr(app_clock, "now", made.now)
        return made

    def monotonic(self) -> float:
        """In place of `time.monotonic`."""
        return time.monotonic() + self._ahead

    def now(self) -> datetime:
        """In place of `clock.now`."""
        return datetime.now(UTC) + timedelta(seconds=self._ahead)

    def advance(self, seconds: float) -> None:
        """Let time pass at once: a sleep of a second ends within an advance of two."""
        self._ahead += seconds

    async def sleep(self, seconds: float) -> None:
        """Let time pass in small steps, in which whatever waits for its time runs."""
        end = self.monotonic() + seconds
        while (left := end - self.monotonic()) > 0:
            self.advance(min(left, _STEP))
            await asyncio.to_thread(time.sleep, _REAL)


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that this test advances. It moves this process's event loop and `app.clock` alone."""
    return Clock.of(asyncio.get_running_loop(), monkeypatch)
