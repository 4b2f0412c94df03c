"""Claims about the client of an engine that misbehaves."""

import asyncio
from array import array
from base64 import b64decode
from typing import Any

import orjson
import pytest

from app.engines.adoption import Sighting
from app.engines.client import EngineAway, EngineClient
from app.engines.continuation import Continuation
from app.engines.outcome import Done, Doubt, EngineDown, Reject, Retry, from_response
from app.engines.requests import CHAT, EMBEDDINGS, RESPONSES, EngineRequest, Target, build
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually

REQUEST = build({"prompt": "hello"}, CHAT, Target("m", 8, 100), "salt")


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ({"mode": "slow", "seconds": 0.01}, Done),
        ({"mode": "status", "status": 429}, Retry),
        ({"mode": "status", "status": 500}, Retry),
        ({"mode": "status", "status": 400}, Reject),
        ({"mode": "junk", "body": "{"}, Doubt),
        ({"mode": "junk", "body": "{}"}, Retry),
        ({"mode": "status", "status": 403, "body": "<html>"}, Doubt),
        ({"mode": "status", "status": 200, "body": "no gzip", "encoding": "gzip"}, Doubt),
        ({"mode": "hang"}, Retry),
        ({"mode": "die"}, EngineDown),
    ],
)
async def test_whatever_the_engine_does_is_an_outcome(rule: dict[str, Any], kind: type) -> None:
    async with FakeEngine() as engine, EngineClient(engine.url, timeout_seconds=0.3) as client:
        engine.script(rule)
        assert isinstance(await client.complete(REQUEST), kind)


async def test_vectors_are_in_base64_where_that_was_asked_for_and_the_engine_ignores_it() -> None:
    async with FakeEngine() as engine, EngineClient(engine.url, timeout_seconds=5) as client:
        found = []
        for wish in ({}, {"encoding_format": "base64"}):
            request = build({"input": ["one", "two"]} | wish, EMBEDDINGS, Target("m", 8, 100), "salt")
            outcome = await client.complete(request)
            assert isinstance(outcome, Done)
            found.append([each["embedding"] for each in orjson.loads(outcome.body)["data"]])
    numbers, packed = found
    assert [list(array("f", b64decode(each))) for each in packed] == [pytest.approx(each) for each in numbers]


async def test_an_engine_that_is_not_there_is_down_and_nobodys_fault() -> None:
    async with FakeEngine() as engine:
        url = engine.url
    async with EngineClient(url, timeout_seconds=1) as client:
        outcome = await client.complete(REQUEST)
        assert isinstance(outcome, EngineDown)
        assert not outcome.suspect
        assert not await client.healthy()
        with pytest.raises(EngineAway, match="/v1/models: ") as away:
            await client.look()
        assert "127.0.0.1" not in str(away.value)


async def test_a_cancelled_call_makes_the_engine_abort() -> None:
    async with FakeEngine() as engine, EngineClient(engine.url, timeout_seconds=9) as client:
        engine.script({"mode": "hang"})
        call = asyncio.create_task(client.complete(REQUEST))
        await eventually(lambda: engine.running)
        call.cancel()
        await eventually(lambda: not engine.running)
        assert engine.aborted == 1


async def test_health_and_served_names_are_read() -> None:
    async with FakeEngine(model="other") as engine, EngineClient(engine.url + "/", timeout_seconds=1) as client:
        assert await client.healthy()
        engine.window, engine.version, engine.policy = 4096, "0.33.0", "fcfs"
        assert await client.look() == Sighting({"other": 4096}, "0.33.0", "fcfs")
        engine.window = engine.policy = None
        assert await client.look() == Sighting({"other": None}, "0.33.0")
        engine.healthy = False
        assert not await client.healthy()


@pytest.mark.parametrize("way", ["whole", "followed"])
async def test_a_request_that_the_engine_may_freeze_has_its_patience_whole_and_followed(way: str) -> None:
    async with FakeEngine() as engine, EngineClient(engine.url, timeout_seconds=0.05) as client:
        engine.script({"match": "x", "mode": "hang"})
        body = {"model": engine.model, "input": "x", "stream": way == "followed"}
        request = EngineRequest(RESPONSES, orjson.dumps(body))
        if way == "whole":
            outcome = await client.complete(request, patient=lambda: True)
        else:
            outcome = await client.events(request, lambda event: None, begun=True, patient=lambda: True)
    assert isinstance(outcome, Retry)
    assert outcome.busy, "no attempt of the item is used up"


@pytest.mark.parametrize("status", [400, 422])
def test_a_refusal_that_quotes_the_name_of_a_failure_is_a_refusal(status: int) -> None:
    body = orjson.dumps({"error": {"message": "tool_choice: 'EngineDeadError' is no tool", "code": status}})
    assert isinstance(from_response(status, body), Reject)
    assert isinstance(from_response(500, body), EngineDown)


@pytest.mark.parametrize(
    ("frozen", "periods", "busy"),
    [
        ([False, False], 1, False),
        ([False, True, False, False], 3, False),
        ([True, False, False], 2, False),
        ([True] * 9, 6, True),
        ([False] + [True] * 9, 6, True),
    ],
)
async def test_a_transcript_that_may_have_been_frozen_when_its_time_is_over_has_more(
    frozen: list[bool], periods: int, busy: bool
) -> None:
    """`frozen`: what is said at its begin, and at the end of each period."""
    asked = iter(frozen)
    count: list[bool] = []

    def patient() -> bool:
        count.append(next(asked))
        return count[-1]

    async with FakeEngine() as engine, EngineClient(engine.url, timeout_seconds=0.02) as client:
        engine.script({"mode": "hang"})
        chat = {"model": engine.model, "messages": [{"role": "user", "content": "x"}]}
        outcome = await client.stream(
            Continuation(EngineRequest(CHAT, orjson.dumps(chat)), 100), print, patient=patient
        )
    assert isinstance(outcome, Retry)
    assert (outcome.code, outcome.busy, len(count) - 1) == (3007, busy, periods)
