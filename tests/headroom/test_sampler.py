"""The sampler against an engine that answers, answers nonsense, repeats itself, or is gone."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from app import clock
from app.headroom.sampler import Sampler
from app.headroom.signals import Scrape
from testing.fakes.engine import FakeEngine

TIMEOUT = 1.0


class Scene:
    """An engine that we hold `own` requests in, scraped by hand at moments of our choosing."""

    def __init__(self, engine: FakeEngine, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine, self.own, self.left, self.heard = engine, 0, 0, list[Scrape]()
        self.sampler = Sampler(
            engine.url,
            lambda: self.own,
            period_seconds=1,
            timeout_seconds=TIMEOUT,
            on_scrape=self.heard.append,
            left=lambda: self.left,
        )
        self._session, self._monkeypatch = session, monkeypatch

    async def at(self, second: float) -> Scrape:
        """What is believed after a scrape at that second."""
        self._monkeypatch.setattr(clock, "monotonic", lambda: second)
        await self.sampler.scrape(self._session)
        assert self.sampler.latest is not None
        return self.sampler.latest


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    async with FakeEngine() as engine, aiohttp.ClientSession() as session:
        yield Scene(engine, session, monkeypatch)


async def test_the_last_good_scrape_stays_when_the_engine_is_gone_and_goes_when_it_talks_nonsense() -> None:
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


async def test_an_idle_engine_may_repeat_itself_for_ever(scene: Scene) -> None:
    for second in range(0, 600, 30):
        assert (await scene.at(float(second))).sampled_at == second
    assert not scene.sampler.frozen


async def test_counters_that_stand_still_under_our_requests_age_from_their_last_move(scene: Scene) -> None:
    scene.own = 4
    scene.engine.generation_tokens = 100
    assert (await scene.at(10.0)).sampled_at == 10.0
    assert (await scene.at(10.0 + 2 * TIMEOUT)).sampled_at == 12.0
    assert (await scene.at(12.1)).sampled_at == 10.0
    assert scene.sampler.frozen
    assert (await scene.at(20.0)).sampled_at == 10.0


async def test_a_frozen_engine_is_believed_when_its_counters_move_again_and_not_before(scene: Scene) -> None:
    scene.own = 4
    await scene.at(10.0)
    await scene.at(13.0)
    scene.own = 0
    assert (await scene.at(14.0)).sampled_at == 10.0
    scene.engine.prompt_tokens += 1
    assert (await scene.at(15.0)).sampled_at == 15.0
    assert not scene.sampler.frozen


async def test_the_time_before_our_first_request_is_not_held_against_an_idle_engine(scene: Scene) -> None:
    await scene.at(10.0)
    await scene.at(100.0)
    scene.own = 1
    assert (await scene.at(101.0)).sampled_at == 101.0


async def test_only_scrapes_that_are_believed_are_passed_on(scene: Scene) -> None:
    scene.own = 4
    for second in (10.0, 11.0, 13.0):
        await scene.at(second)
    scene.engine.metrics_text = "<html>"
    assert (await scene.at(14.0)).gauges is None
    assert [scrape.sampled_at for scrape in scene.heard] == [10.0, 11.0]


async def test_a_step_that_took_long_and_ended_well_is_waited_for_the_next_time(scene: Scene) -> None:
    scene.own = 4
    await scene.at(10.0)
    assert (await scene.at(14.0)).frozen
    scene.engine.generation_tokens += 1
    assert not (await scene.at(14.2)).frozen
    assert scene.sampler.still_seconds == pytest.approx(1.5 * 4.2)
    assert (await scene.at(20.0)).sampled_at == 20.0
    assert (await scene.at(21.0)).limit == pytest.approx(1.5 * 4.2)
    assert scene.sampler.frozen


async def test_a_stand_still_that_ended_with_our_requests_gone_or_the_engine_new_teaches_nothing(scene: Scene) -> None:
    scene.own, scene.engine.generation_tokens = 4, 50
    await scene.at(10.0)
    await scene.at(17.0)
    scene.own = 0
    scene.engine.generation_tokens += 1
    await scene.at(18.0)
    scene.own = 4
    await scene.at(25.0)
    scene.engine.generation_tokens = 1
    await scene.at(26.0)
    assert scene.sampler.still_seconds == 2 * TIMEOUT


async def test_an_engine_whose_answers_take_their_time_is_believed_for_longer(scene: Scene) -> None:
    moments = iter([10.0, 10.0, 11.2, 12.6])
    scene._monkeypatch.setattr(clock, "monotonic", lambda: next(moments))
    await scene.sampler.scrape(scene._session)
    assert scene.sampler.latest is not None
    assert scene.sampler.latest.limit == TIMEOUT
    await scene.sampler.scrape(scene._session)
    assert scene.sampler.latest.limit == pytest.approx(1.5 * 2.6)


async def test_what_is_wrong_is_said_in_words(scene: Scene) -> None:
    scene.engine.metrics_fault = "error"
    await scene.sampler.scrape(scene._session)
    assert scene.sampler.trouble == "GET /metrics is answered with 500"
    scene.engine.metrics_fault, scene.engine.metrics_text = "", "<html>"
    await scene.at(1.0)
    assert scene.sampler.trouble.startswith("/metrics has no `# TYPE vllm:…` line")
    scene.engine.metrics_text = None
    await scene.at(2.0)
    assert scene.sampler.trouble == ""


async def test_a_scrape_before_a_longer_pause_may_grow_older_until_the_pause_ends_and_teaches_no_longer_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, planned = [100.0], [0.85]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])

    async def pause(seconds: float) -> None:
        now[0] += seconds + planned[0]

    async with FakeEngine() as engine, aiohttp.ClientSession() as session:
        sampler = Sampler(
            engine.url, lambda: 0, period_seconds=0.15, timeout_seconds=1, pause=pause, extra=lambda seconds: planned[0]
        )
        limits = []
        for _ in range(10):
            await sampler.scrape(session)
            assert sampler.latest is not None
            limits.append(sampler.latest.limit)
            await sampler.rest()
        assert limits == [pytest.approx(1.85)] * 10
        sampler.hurry()
        assert sampler.latest.limit == pytest.approx(1)


async def test_an_engine_that_asks_for_its_key_gets_it_for_its_metrics_too() -> None:
    seen: list[str | None] = []

    async def guarded(request: web.Request) -> web.Response:
        seen.append(request.headers.get("authorization"))
        return web.Response(status=401)

    application = web.Application()
    application.router.add_get("/metrics", guarded)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            key = {"authorization": "Bearer secret"}
            sampler = Sampler(url, lambda: 0, period_seconds=1, timeout_seconds=1, headers=key)
            await sampler.scrape(session)
    finally:
        await runner.cleanup()
    assert seen == ["Bearer secret"]
    assert "401" in sampler.trouble


async def test_ours_that_the_engine_still_shows_after_they_left_are_no_callers(scene: Scene) -> None:
    scene.own = scene.engine.extra_running = 4
    for second in range(4):
        scene.engine.generation_tokens += 10
        await scene.at(second / 10)
    scene.own, scene.left = 0, 4  # cancelled, and no step follows that would publish it
    assert (await scene.at(0.5)).others == 0
    assert (await scene.at(60.0)).others == 0
    scene.engine.extra_running = 5
    assert (await scene.at(60.1)).others == 1
