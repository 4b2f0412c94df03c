"""Scrapes an engine's telemetry and keeps the last look at it."""

import asyncio
from collections.abc import Callable

import aiohttp
import structlog

from app import clock
from app.headroom.controller import Sample
from app.headroom.metrics import TelemetryError, parse

log = structlog.get_logger()


class Sampler:
    """Holds `latest`. An engine that does not answer leaves the last sample to grow stale; one that answers nonsense
    replaces it by a sample without gauges.
    """

    def __init__(self, url: str, own: Callable[[], int], *, period_seconds: float, timeout_seconds: float) -> None:
        self.latest: Sample | None = None
        self._url = f"{url}/metrics"
        self._own = own
        self._period = period_seconds
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._trouble = ""

    async def run(self) -> None:
        """Sample until cancelled. Never raises anything else."""
        async with aiohttp.ClientSession(timeout=self._timeout) as session:
            while True:
                await self.scrape(session)
                await asyncio.sleep(self._period)

    async def scrape(self, session: aiohttp.ClientSession) -> None:
        """Take one sample. Our own load is the least seen around the scrape, so others are never underestimated."""
        began, before = clock.monotonic(), self._own()
        try:
            async with session.get(self._url) as response:
                response.raise_for_status()
                text = await response.text()
            self.latest = Sample(parse(text), began, min(before, self._own()))
            self._note("")
        except TelemetryError as error:
            self.latest = Sample(None, began, before)
            self._note(str(error))
        except (aiohttp.ClientError, TimeoutError, UnicodeDecodeError) as error:
            self._note(repr(error))

    def _note(self, trouble: str) -> None:
        """Log a change between readable and unreadable, not every scrape."""
        if trouble and not self._trouble:
            log.warning("telemetry.unreadable", url=self._url, error=trouble)
        elif self._trouble and not trouble:
            log.info("telemetry.readable", url=self._url)
        self._trouble = trouble
