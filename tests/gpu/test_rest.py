"""Claims about a worker whose engine has nothing to do."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from app.crypto import bearer_token, secret_key
from app.engines.client import EngineClient
from app.gateway.announcer import Announcer
from app.headroom.arrivals import ANNOUNCING
from app.headroom.sampler import Sampler
from app.queue import heartbeat
from app.queue import service as queue
from testing.waiting import eventually
from tests.gpu.world import Running, World
from workers.gpu import claim_backoff
from workers.gpu import rest as resting
from workers.gpu.rest import CALM_SECONDS, LOOK_SECONDS, Rest

CALLER = {"event": "arrived", "id": "r1", "class": "sync", "prompt_tokens": 10, "max_tokens": 10}


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(resting.clock, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the engine and the queue were asked. At rest nothing is looked at for ten minutes."""
    counts = Counter[str]()

    def counted(where: Any, name: str) -> None:
        real: Callable[..., Awaitable[Any]] = getattr(where, name)

        async def count(*given: Any, **how: Any) -> Any:
            counts[name] += 1
            return await real(*given, **how)

        monkeypatch.setattr(where, name, count)

    for where, name in ((Sampler, "scrape"), (EngineClient, "healthy"), (queue, "claim"), (heartbeat, "send")):
        counted(where, name)
    monkeypatch.setattr(resting, "CALM_SECONDS", 0.3)
    monkeypatch.setattr(resting, "LOOK_SECONDS", 600)
    monkeypatch.setattr(claim_backoff, "CALM_SECONDS", 600)
    return counts


async def at_rest(running: Running, looks: Counter[str]) -> Counter[str]:
    """Wait until the worker rests, and every look that had begun has ended. Returns the counts."""
    await eventually(lambda: running.worker._control._rest.lasts)
    beats = looks["send"] + 15
    await eventually(lambda: looks["send"] >= beats)
    return looks.copy()


async def test_at_rest_only_heartbeats_are_sent_and_a_wake_ends_it(world: World, looks: Counter[str]) -> None:
    token = bearer_token(secret_key(world.settings), ANNOUNCING)
    async with world.worker(heartbeat_seconds=0.1) as running, Announcer(token, rest_seconds=5) as api:
        before = await at_rest(running, looks)
        await eventually(lambda: looks["send"] >= before["send"] + 10)
        assert looks - before == {"send": looks["send"] - before["send"]}
        [(url, reason)] = await world.fetch("select arrival_url, reason from engine")
        assert reason == "open"  # its telemetry is as old as it may be at rest
        batch = await world.submit(["hello"])
        api.wake(url)
        await eventually(lambda: world.engine.count.total() == 1)
        assert looks["scrape"] > before["scrape"]
        await world.finished(batch)


async def test_a_caller_that_is_announced_ends_the_rest(world: World, looks: Counter[str]) -> None:
    async with world.worker(heartbeat_seconds=0.1) as running:
        before = await at_rest(running, looks)
        running.worker._events.take(orjson.dumps(CALLER))
        await eventually(lambda: looks["scrape"] > before["scrape"] + 3 and looks["healthy"] > before["healthy"])


async def test_a_rest_begins_by_itself_and_ends_when_somebody_stirs(now: list[float]) -> None:
    rest, ended = Rest(), list[float]()
    rest.on_end(lambda: ended.append(now[0]))
    now[0] += CALM_SECONDS - 0.1
    assert rest.length(0.1) == 0.1
    rest.stir()
    now[0] += CALM_SECONDS
    assert rest.length(0.1) == LOOK_SECONDS
    assert rest.length(0.1, most=0.4) == 0.4
    assert rest.length(5) == 5
    assert not ended
    rest.stir()
    rest.stir()
    assert ended == [now[0]]
    assert rest.length(0.1) == 0.1
