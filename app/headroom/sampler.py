"""Scrapes an engine's telemetry and keeps the last look at it that means anything."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import aiohttp
import structlog

from app import clock
from app.headroom.metrics import EngineGauges, TelemetryError, parse
from app.headroom.signals import Scrape

log = structlog.get_logger()


class Sampler:
    """Holds `latest`. An engine that does not answer leaves the last scrape to grow stale; one that answers nonsense
    replaces it by a scrape without gauges; and one that repeats itself while it should be working for us (its counters
    stand still for twice `timeout_seconds`) is not believed until they move again.
    """

    def __init__(
        self,
        url: str,
        own: Callable[[], int],
        *,
        period_seconds: float,
        timeout_seconds: float,
        on_scrape: Callable[[Scrape], None] = lambda scrape: None,
    ) -> None:
        self.latest: Scrape | None = None
        self.frozen = False
        self._url = f"{url}/metrics"
        self._own = own
        self._period = period_seconds
        self._patience = 2 * timeout_seconds
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._on_scrape = on_scrape
        self._moved: tuple[EngineGauges | None, float] = (None, 0.0)  # the last gauges that had moved, and when
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
            self._take(Scrape(parse(text), began, min(before, self._own())))
        except TelemetryError as error:
            self.latest = Scrape(None, began, before)
            self._note(str(error))
        except (aiohttp.ClientError, TimeoutError, UnicodeDecodeError) as error:
            self._note(repr(error))

    def _take(self, scrape: Scrape) -> None:
        assert scrape.gauges is not None
        gauges, since = self._moved
        if gauges is None or _counters(gauges) != _counters(scrape.gauges) or (not scrape.own and not self.frozen):
            self._moved, self.frozen = (scrape.gauges, scrape.sampled_at), False
        elif scrape.sampled_at - since > self._patience:
            self.frozen = True
        if self.frozen:
            self.latest = replace(scrape, sampled_at=since)
            self._note("its counters stand still though requests are in flight")
            return
        self.latest = scrape
        self._note("")
        self._on_scrape(scrape)

    def _note(self, trouble: str) -> None:
        """Log a change between readable and unreadable, not every scrape."""
        if trouble and not self._trouble:
            log.warning("telemetry.unreadable", url=self._url, error=trouble)
        elif self._trouble and not trouble:
            log.info("telemetry.readable", url=self._url)
        self._trouble = trouble


def _counters(gauges: EngineGauges) -> tuple[int, int, int]:
    return gauges.generation_tokens, gauges.prompt_tokens, gauges.steps
