"""Claims about what a call is metered at: whatever an engine worked on, also where nobody got the answer, and nothing else."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from app.budgets.calls import CallSize
from app.db.pool import Database
from app.errors import SlackwaterError
from app.gateway import call_bill
from app.gateway.call_bill import Paces
from app.gateway.relay import Gateway, SyncCall
from app.metering.lines import SYNC, parts_of
from app.metering.spend_labels import SpendLabels
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually
from tests.budgets.world import World
from tests.clock import Clock
from tests.gateway.support import Registry

Used = Callable[[], Awaitable[list[tuple[int, ...]]]]


@pytest.fixture
async def world(database: Database) -> World:
    found = World(database)
    await found.begin()
    return found


@pytest.fixture
def call(call: SyncCall, world: World) -> SyncCall:
    line = parts_of(world.tenant, "key", SpendLabels("w"), call.model.name, SYNC, None)
    return replace(call, tenant_id=world.tenant, line=line, size=CallSize(12, 34, 34, {}))


@pytest.fixture
def used(gateway: Gateway, world: World) -> Used:
    """Requests, those that were answered, tokens of prompts and of answers, once they are booked."""

    async def read() -> list[tuple[int, ...]]:
        await gateway.usage.book()
        query = """select sum(requests)::int, sum(ok)::int, sum(prompt)::int, sum(output)::int
          from usage join line using (line_id) group by line_id"""
        return [tuple(row) for row in await world.rows(query)]

    return read


async def listen(gateway: Gateway, call: SyncCall) -> None:
    async for _ in gateway.stream(call):
        pass


async def left(engine: FakeEngine, request: Awaitable[object], clock: Clock, seconds: float) -> None:
    """The caller goes this long after the engine has got the request."""
    before = engine.count.total()
    task = asyncio.ensure_future(request)
    await eventually(lambda: engine.count.total() > before)
    clock.advance(seconds)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_caller_who_leaves_before_the_first_byte_is_metered(
    gateway: Gateway,
    registry: Registry,
    call: SyncCall,
    used: Used,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call_bill, "_USUAL_PACE", 0.5)  # so slow that it does not matter how long the test itself takes
    async with FakeEngine() as engine:
        engine.script({"mode": "hang"})
        await registry.ready(engine)
        await left(engine, gateway.complete(call), clock, 50.0)
        assert await used() == [(1, 0, 12, 25)]  # at the usual pace, while none is known
        await left(engine, gateway.complete(call), clock, 100.0)
        assert await used() == [(2, 0, 24, 25 + 34)]  # an answer has its limit
        await left(engine, listen(gateway, call), clock, 1.0)
        assert await used() == [(3, 0, 36, 25 + 34)]  # its tokens would have been seen


async def test_what_nobody_saw_has_the_pace_of_the_models_answers(
    gateway: Gateway, registry: Registry, call: SyncCall, used: Used, clock: Clock
) -> None:
    gateway._books.paces.note(call.model.served, 20, 40.0)
    async with FakeEngine() as engine:
        engine.script({"mode": "hang"})
        await registry.ready(engine)
        await left(engine, gateway.complete(call), clock, 40.0)
        assert await used() == [(1, 0, 12, 20)]


async def test_a_budget_is_spent_by_calls_whose_callers_have_left(
    gateway: Gateway,
    registry: Registry,
    call: SyncCall,
    world: World,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Paces, "tokens", lambda *_: 10)  # however much time passes
    await world.budget(max_tokens=1000)
    async with FakeEngine() as engine, gateway.budgets.keeping():
        engine.script({"mode": "hang"})
        await registry.ready(engine)
        for _ in range(3):
            await left(engine, gateway.complete(call), clock, 0.4)
    assert (await world.state()).spent == 3 * (12 + 10)


@pytest.mark.parametrize("rule", [{"status": 503}, {"status": 429}, {"status": 400, "message": "no"}])
@pytest.mark.parametrize("stream", [True, False])
async def test_what_an_engine_refuses_or_has_no_room_for_is_not_metered(
    gateway: Gateway, registry: Registry, call: SyncCall, used: Used, rule: dict[str, Any], stream: bool
) -> None:
    async with FakeEngine() as engine:
        engine.script({"mode": "status", **rule})
        await registry.ready(engine)
        with pytest.raises(SlackwaterError):
            await (listen(gateway, call) if stream else gateway.complete(call))
    assert await used() == []


async def test_what_reached_no_engine_is_not_metered(
    gateway: Gateway, registry: Registry, call: SyncCall, used: Used
) -> None:
    async with FakeEngine() as engine:
        await registry.ready(engine)
    with pytest.raises(SlackwaterError):
        await gateway.complete(replace(call, hurried=True))
    assert await used() == []


async def test_an_engine_that_is_lost_has_worked_on_the_prompt_and_the_request_counts_once(
    gateway: Gateway, registry: Registry, call: SyncCall, used: Used, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeEngine() as good, FakeEngine() as doomed:
        await registry.ready(good, "good")
        await gateway.complete(call)
        [(*_, prompt, output)] = await used()
        monkeypatch.setattr(Paces, "tokens", lambda *_: 5)  # however much time passes
        doomed.script({"mode": "die"})
        await registry.ready(doomed, "doomed")
        while not doomed.count.total():
            await gateway.complete(call)
        done, lost = good.finished.total(), doomed.count.total()
        assert await used() == [(done, done, done * prompt + lost * 12, done * output + lost * 5)]
        good.script({"mode": "die"})
        with pytest.raises(SlackwaterError):
            await gateway.complete(call)
        [(requests, ok, *_)] = await used()
    assert (requests, ok) == (done + 1, done)


async def test_tokens_that_are_counted_beside_the_last_choice_are_metered(
    gateway: Gateway, registry: Registry, call: SyncCall, used: Used
) -> None:
    last = '"choices": [{"index": 0, "logprobs": null, "finish_reason": "stop"'
    async with FakeEngine() as engine:
        engine.stream_usage = False
        engine.script({"replace": [[last, f'"usage": {{"prompt_tokens": 84, "completion_tokens": 8}}, {last}']]})
        await registry.ready(engine)
        await listen(gateway, call)
        assert await used() == [(1, 1, 84, 8)]
