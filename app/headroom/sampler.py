"""Scrapes an engine's telemetry and keeps the last useful scrape."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

import aiohttp
import structlog

from app import clock
from app.engines.client import without_address
from app.engines.dialects import VLLM_TERMS, MetricsPage, Terms
from app.headroom.engine_metrics import EngineGauges, TelemetryError, parse
from app.headroom.leaving import Leaving
from app.headroom.signals import Scrape
from app.headroom.silence_limit import SilenceLimit, Stall, missed

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
log = structlog.get_logger()


class Sampler:
    """`latest`: the last scrape. `trouble`: the error of the last attempt, or "". `frozen`: the counters do not change.

    If the engine does not answer, the last scrape grows stale. If the answer cannot be parsed, `latest` has no gauges. If the
    counters do not change while the engine should be working for us, they are not trusted until they change again.

    How long the engine may be silent, or its counters unchanged, is learned, because a busy host is slow. The minimum is
    `timeout_seconds`, and twice that for counters. `plausible`: the predicted length of a step. `stalls`: when this process
    did not run.

    `pause`: waits so many seconds before the next scrape, or longer while the engine rests, as was planned: `extra` says by how
    much. A scrape may be older by that.

    `headers`: those of every request to the engine, with its key. `terms`: how the engine is spoken to. If it shows no load, as
    it may in some dialects, a scrape has what we know ourselves: our own requests and those that were `announced`. `own`, `left`:
    how many of our requests are in the engine, and how many have been.
    """

    def __init__(
        self,
        url: str,
        own: Callable[[], int],
        *,
        period_seconds: float,
        timeout_seconds: float,
        headers: Mapping[str, str] = NO_HEADERS,
        on_scrape: Callable[[Scrape], None] = lambda scrape: None,
        plausible: Callable[[], float] = lambda: 0.0,
        stalls: Callable[[float], Iterable[Stall]] = lambda now: (),
        terms: Callable[[], Terms] = lambda: VLLM_TERMS,
        announced: Callable[[], int] = lambda: 0,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        extra: Callable[[float], float] = lambda seconds: 0.0,
        left: Callable[[], int] = lambda: 0,
    ) -> None:
        self.latest: Scrape | None = None
        self.frozen = False
        self.trouble = ""
        self._url, self._headers = url, headers  # not in messages to callers
        self._own, self._left = own, left
        self._leaving = Leaving()
        self._period = period_seconds
        self._answers, self._steps = SilenceLimit(timeout_seconds), SilenceLimit(2 * timeout_seconds)
        self._on_scrape = on_scrape
        self._plausible = plausible
        self._stalls = stalls
        self._terms, self._announced = terms, announced
        self._pause, self._extra = pause, extra
        self._rested = 0.0  # the longer part of the last pause
        self._moved: tuple[EngineGauges | None, float] = (None, 0.0)  # the last gauges that had changed, and when

    @property
    def still_seconds(self) -> float:
        """How long an engine's counters may stay unchanged while it works for us."""
        return self._steps.limit(self._plausible())

    async def run(self) -> None:
        """Sample until cancelled. Never raises anything else."""
        async with aiohttp.ClientSession() as session:
            while True:
                await self.scrape(session)
                await self.rest()

    async def rest(self) -> None:
        """Wait until the next scrape is due."""
        began = clock.monotonic()
        await self._pause(self._period)
        self._rested = max(0.0, clock.monotonic() - began - self._period)

    def hurry(self) -> None:
        """The engine no longer rests: the last scrape may be as old as usual, and no older."""
        if self.latest is not None and self.latest.limit and not self.latest.frozen:
            self.latest = replace(self.latest, limit=self._answers.limit())

    async def scrape(self, session: aiohttp.ClientSession) -> None:
        """Take one sample. Our own load is the smallest value during the scrape, so others are never underestimated."""
        began, before, left = clock.monotonic(), self._own(), self._left()
        terms = self._terms()
        page = terms.dialect.metrics
        if page is None or (text := await self._fetch(session, page, terms)) == "":
            return self._see_ourselves(began)
        if text is None:
            return None
        try:
            gauges = parse(text, page, terms.batch_priority)
        except TelemetryError as error:
            self.latest = Scrape(None, began, before)
            return self._note(str(error))
        self._learn_limit(clock.monotonic())
        limit = self._answers.limit() + self._extra(self._period)
        scrape = Scrape(gauges, began, min(before, self._own()), limit)
        if page.live:
            return self._take(self._without_leaving(scrape, left))
        return self._trust(scrape)

    async def _fetch(self, session: aiohttp.ClientSession, page: MetricsPage, terms: Terms) -> str | None:
        """The text of the page; empty if the engine has none and needs none, None if it cannot be read."""
        seconds = 2 * self._answers.limit()  # an answer that is too late still teaches the limit
        try:
            timeout = aiohttp.ClientTimeout(total=seconds)
            async with session.get(self._url + page.path, headers=self._headers, timeout=timeout) as response:
                if response.status == 200:
                    return await response.text() or "\n"
                if response.status == 404 and terms.dialect.load == "optional":
                    return ""
                self._note(f"GET {page.path} is answered with {response.status}")
        except TimeoutError:
            self._note(f"GET {page.path} is not answered within {seconds:.3g} s")
        except (aiohttp.ClientError, UnicodeDecodeError) as error:
            self._note(f"GET {page.path} fails: {without_address(error)}")
        return None

    def _without_leaving(self, scrape: Scrape, left: int) -> Scrape:
        assert scrape.gauges is not None
        counters, at = _counters(scrape.gauges), scrape.sampled_at
        leaving = self._leaving.among(scrape.beyond, left, counters, at, busy_seconds=self.still_seconds)
        return replace(scrape, leaving=leaving)

    def _see_ourselves(self, now: float) -> None:
        """A scrape of an engine that shows no load. That is no fault: its cap and the latency of its streams decide."""
        own = self._own()
        known = EngineGauges(own + self._announced(), 0, 0.0, 0, 0, 0)
        self._trust(Scrape(known, now, own, blind=True))

    def _learn_limit(self, now: float) -> None:
        """Learn how old a scrape gets before the next one, without the time in which this process did not run."""
        if self.latest is not None and not self.latest.frozen:
            since = self.latest.sampled_at
            self._answers.ended(now - since - self._rested - missed(self._stalls(now), since), now)

    def _take(self, scrape: Scrape) -> None:
        assert scrape.gauges is not None
        gauges, since = self._moved
        still = scrape.sampled_at - since - missed(self._stalls(scrape.sampled_at), since)
        if gauges is None or _counters(gauges) != _counters(scrape.gauges) or (not scrape.own and not self.frozen):
            if gauges is not None and scrape.own and scrape.gauges.generation_tokens >= gauges.generation_tokens:
                self._steps.ended(still, scrape.sampled_at)
            self._moved, self.frozen = (scrape.gauges, scrape.sampled_at), False
        elif still > self.still_seconds:
            self.frozen = True
        if self.frozen:
            self.latest = replace(scrape, sampled_at=since, limit=self.still_seconds, frozen=True)
            self._note("its counters do not change although requests are in flight")
            return
        self._trust(scrape)

    def _trust(self, scrape: Scrape) -> None:
        self.latest, self.frozen = scrape, False
        self._note("")
        self._on_scrape(scrape)

    def _note(self, trouble: str) -> None:
        """Log a change between readable and unreadable."""
        if trouble and not self.trouble:
            note = log.debug if self.latest is None else log.warning  # the start of an engine is logged elsewhere
            note("telemetry.unreadable", url=self._url, error=trouble)
        elif self.trouble and not trouble:
            log.info("telemetry.readable", url=self._url)
        self.trouble = trouble


def _counters(gauges: EngineGauges) -> tuple[int, int, int]:
    return gauges.generation_tokens, gauges.prompt_tokens, gauges.steps
