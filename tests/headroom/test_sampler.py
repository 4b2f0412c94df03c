"""The sampler against an engine that answers, answers nonsense, or is gone."""

import aiohttp
import pytest

from app.headroom.sampler import Sampler
from tests.fakes.engine import FakeEngine


async def test_the_last_good_sample_stays_when_the_engine_is_gone_and_goes_when_it_talks_nonsense() -> None:
    async with aiohttp.ClientSession() as session:
        async with FakeEngine() as engine:
            engine.extra_running = 5
            sampler = Sampler(engine.url, lambda: 3, period_seconds=1, timeout_seconds=1)
            await sampler.scrape(session)
            good = sampler.latest
            assert good is not None
            assert good.gauges is not None
            assert (good.gauges.running, good.own) == (5, 3)
        await sampler.scrape(session)
        assert sampler.latest is good
        async with FakeEngine(port=engine.port) as engine:
            engine.metrics_text = "<html>"
            await sampler.scrape(session)
            assert sampler.latest is not None
            assert sampler.latest.gauges is None


@pytest.mark.parametrize("around", [(2, 7), (7, 2)])
async def test_requests_that_come_or_go_during_a_scrape_are_not_subtracted(around: tuple[int, int]) -> None:
    own = iter(around)
    async with FakeEngine() as engine, aiohttp.ClientSession() as session:
        sampler = Sampler(engine.url, lambda: next(own), period_seconds=1, timeout_seconds=1)
        await sampler.scrape(session)
    assert sampler.latest is not None
    assert sampler.latest.own == 2
