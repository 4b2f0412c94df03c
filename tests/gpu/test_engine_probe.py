"""One one-token request answers for all doubtful answers at that time."""

import asyncio
from typing import Any

from app import clock
from app.engines.outcome import Done, EngineDown, Outcome, Reject, Retry, Usage, from_response
from app.engines.requests import CHAT, COMPLETIONS, EMBEDDINGS, EngineRequest, Target
from testing.waiting import eventually
from workers.gpu.engine_probe import EngineProbe

GOOD = Done(b"{}", Usage())


class Engine:
    """Answers one-token requests when it is told to. `answers`: by route; otherwise all is well."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go = asyncio.Event()
        self.answers: dict[str, Outcome] = {}

    async def probe(self, request: EngineRequest) -> Outcome:
        self.asked.append(request.route)
        await self.go.wait()
        return self.answers.get(request.route, GOOD)


def probing(engine: Engine, **options: Any) -> EngineProbe:
    target = Target("m", 8, 100, pooling=options.pop("pooling", False))
    return EngineProbe(engine, lambda: target, **{"pause_seconds": 0.01, **options})


async def test_one_request_serves_all_that_were_in_doubt_before_it_and_the_next_one_those_after() -> None:
    engine = Engine()
    probe = probing(engine)
    first = [asyncio.create_task(probe.failure(clock.monotonic())) for _ in range(20)]
    await eventually(lambda: engine.asked)
    later = [asyncio.create_task(probe.failure(clock.monotonic())) for _ in range(20)]
    engine.go.set()
    assert await asyncio.gather(*first, *later) == [None] * 40
    assert len(engine.asked) == 2


async def test_there_is_at_most_one_in_a_pause() -> None:
    engine, slept = Engine(), list[float]()
    engine.go.set()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    probe = probing(engine, pause_seconds=60, sleep=sleep)
    await probe.failure(clock.monotonic())
    await probe.failure(clock.monotonic())
    assert len(engine.asked) == 2
    assert slept[0] == 0
    assert 50 < slept[1] <= 60


async def test_an_answer_to_somebodys_request_that_was_sent_later_says_as_much() -> None:
    engine = Engine()
    probe = probing(engine)
    doubted = clock.monotonic()
    probe.answered(CHAT, clock.monotonic())
    assert await probe.failure(doubted) is None
    assert engine.asked == []


async def test_it_asks_on_a_route_that_is_known_to_be_served() -> None:
    engine = Engine()
    engine.go.set()
    probe = probing(engine)
    probe.answered(COMPLETIONS, 0)
    assert await probe.failure(clock.monotonic()) is None
    assert engine.asked == [COMPLETIONS]


async def test_a_missing_route_says_nothing_while_another_is_served() -> None:
    engine = Engine()
    engine.go.set()
    engine.answers = {CHAT: from_response(404, b'{"detail":"Not Found"}')}
    probe = probing(engine)
    probe.answered(CHAT, 0)
    assert await probe.failure(clock.monotonic()) is None
    assert engine.asked == [CHAT, COMPLETIONS]
    assert not probe.serves(CHAT)
    assert probe.serves(COMPLETIONS)


async def test_an_engine_that_only_embeds_is_asked_for_an_embedding() -> None:
    engine = Engine()
    engine.go.set()
    assert await probing(engine, pooling=True).failure(clock.monotonic()) is None
    assert engine.asked == [EMBEDDINGS]


async def test_every_kind_of_answer_says_whether_the_engine_can_be_used() -> None:
    engine = Engine()
    engine.go.set()
    for outcome, expected in (
        (Reject(5006, "max_tokens is too small"), type(None)),
        (Retry("engine answered 429", busy=True), type(None)),
        (Retry("no answer in time", 3007), Retry),
        (Retry("engine answered 500"), EngineDown),
        (from_response(503, b"no healthy upstream"), EngineDown),
        (from_response(503, b'{"error": "full"}'), EngineDown),
        (from_response(429, b'{"error": "full"}'), type(None)),
        (from_response(408, b""), EngineDown),
        (EngineDown("cannot connect", suspect=False), EngineDown),
        (from_response(401, b'{"error": "Unauthorized"}'), EngineDown),
        (from_response(200, b"<html>"), EngineDown),
    ):
        engine.answers = {CHAT: outcome, COMPLETIONS: outcome}
        failure = await probing(engine).failure(clock.monotonic())
        assert isinstance(failure, expected), outcome
        if isinstance(failure, EngineDown):
            assert not failure.suspect
