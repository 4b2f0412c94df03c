"""The rest of a steward that leads: while nothing waits, one statement a second looks whether that is still so."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from app import clock
from app.batches.waits_sql import WAITS
from app.settings import Settings
from workers.steward.leader import Leadership

CALM_SECONDS = 3.0  # without anything to do before it rests: longer than a process waits between two calls
LOOK_SECONDS = 1.0
ROUND_SECONDS = 20.0  # between two rounds of a steward that rests, for what is due by the clock alone


class Pace:
    """The pace of the loops beside the rounds: each waits after its work for its next turn, and while the steward rests."""

    def __init__(self) -> None:
        self._going = asyncio.Event()
        self._going.set()

    async def pause(self, seconds: float, longest: float | None = None) -> None:
        """Wait so many seconds and, for so many more at most, until the steward does not rest."""
        await asyncio.sleep(seconds)
        with suppress(TimeoutError):
            async with asyncio.timeout(longest):
                await self._going.wait()

    def rest(self) -> None:
        """Let the loops wait."""
        self._going.clear()

    def go_on(self) -> None:
        """Let them go on."""
        self._going.set()


class Rest:
    """When the steward rests, and for how long. `look` gets the server's time and that of its start with each look."""

    def __init__(self, settings: Settings, pace: Pace, look: Callable[[float, float], None]) -> None:
        self._terms = {"rehint": settings.webhook_rehint_seconds}
        self._pace, self._look = pace, look
        self._busy_at = self._looked_at = clock.monotonic()

    async def take(self, lead: Leadership, stopping: asyncio.Event) -> None:
        """After a round that changed nothing: return when the next one may find something, or after ROUND_SECONDS."""
        now = clock.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return
        if await self._waits(lead) or now - self._busy_at < CALM_SECONDS:
            return
        self._pace.rest()
        try:
            await self._until_needed(lead, stopping, now + ROUND_SECONDS)
        finally:
            self._pace.go_on()

    async def _until_needed(self, lead: Leadership, stopping: asyncio.Event, until: float) -> None:
        while not stopping.is_set() and clock.monotonic() < until:
            if await lead.called(LOOK_SECONDS, stopping):
                self._busy_at = clock.monotonic()
                return
            await lead.confirm()
            if await self._waits(lead):
                return

    async def _waits(self, lead: Leadership) -> bool:
        self._looked_at = clock.monotonic()
        waits, now, server_start = await lead.ask(WAITS, self._terms)
        self._look(now, server_start)
        if waits:
            self._busy_at = clock.monotonic()
        return bool(waits)
