"""What a worker says and does about an engine that it cannot use."""

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.engines import catalogue
from app.engines.client import EngineAway, EngineClient
from app.engines.requests import Target
from app.processes import free_port
from app.settings import DEMO_MODELS
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually
from tests.clock import Clock
from tests.gpu.world import MODEL, World
from workers.gpu.engine_health import EngineHealth
from workers.gpu.recovery_time import RecoveryTime
from workers.gpu.tuning import WorkerTuning

QUICK = WorkerTuning(health_seconds=0.05, unreachable_seconds=0.3)


async def test_an_engine_that_was_down_from_the_start_is_mentioned_once(world: World, clock: Clock) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with capture_logs() as said:
        async with world.worker(tuning=QUICK, engine_url=url):
            await eventually(lambda: any(line["event"] == "engine.not_reachable" for line in said))
            await clock.sleep(1)
    assert [line["url"] for line in said if line["event"] == "engine.not_reachable"] == [url]


async def test_an_engine_without_the_model_is_asked_for_nothing_until_it_has_it(world: World, clock: Clock) -> None:
    world.engine.serves = ["org/one", "org/two"]
    batch = await world.submit(["hi"])
    with capture_logs() as said:
        async with world.worker(tuning=QUICK, lease_seconds=60):
            await world.until("exists (select from engine where state = 'down' and reason = 'model_missing')")
            await clock.sleep(1)
            assert not world.engine.count
            world.engine.serves = ["org/one", MODEL]
            await world.finished(batch)
    refused = [line for line in said if line["event"] == "engine.refused"]
    up = next(i for i, line in enumerate(said) if line["event"] == "engine.up")
    assert not [line for line in said[:up] if line["event"] == "headroom.decided" and line["reason"] == "open"]
    assert [line for line in said[up:] if line["event"] == "headroom.decided" and line["reason"] == "open"]
    assert [(line["reason"], line["problem"]) for line in refused] == [
        ("model_missing", f"The engine serves org/one, org/two, not {MODEL}.")
    ]
    assert world.engine.bodies[0]["model"] == MODEL


async def test_an_engine_that_is_gone_is_expected_back_by_what_an_earlier_worker_learned(world: World) -> None:
    async with world.worker(tuning=QUICK):
        await world.until("exists (select from engine where state = 'ready')")
    await world.fetch("update engine set start_seconds = 42 returning 1")
    async with world.worker(tuning=QUICK):
        await world.until("exists (select from engine where state = 'ready' and expected_at is null)")
        world.engine.healthy = False
        soon = "expected_at between now() + interval '30 s' and now() + interval '43 s'"
        await world.until(f"exists (select from engine where state = 'down' and {soon})")
        world.engine.healthy = True
        await world.until("exists (select from engine where state = 'ready' and expected_at is null)")
    assert await world.fetch("select expected_at, start_seconds >= 20 from engine") == [(None, True)]


async def test_telemetry_that_lacks_a_metric_is_told_by_its_name_in_engine_and_log(world: World) -> None:
    page = "\n".join(line for line in world.engine.page().splitlines() if "kv_cache_usage_perc{" not in line)
    async with world.worker(tuning=QUICK):
        await world.until("exists (select from engine where state = 'ready' and reason <> 'closed_unknown')")
        world.engine.metrics_text = page
        lacks = "detail = '/metrics has no vllm:kv_cache_usage_perc'"
        await world.until(f"exists (select from engine where reason = 'closed_unknown' and {lacks})")
        await world.until(f"exists (select from decision where reason = 'closed_unknown' and {lacks})")
        world.engine.metrics_text = None
        await world.until("exists (select from engine where reason <> 'closed_unknown' and detail is null)")


async def test_an_engine_is_used_once_what_it_serves_was_read_and_is_read_every_five_seconds_and_after_each_outage(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = catalogue.load(DEMO_MODELS).models[MODEL]
    runner: Any = SimpleNamespace(target=Target.of(model))

    async def busy(client: EngineClient) -> Any:
        raise EngineAway("GET /v1/models takes too long")

    async with FakeEngine(model=MODEL) as engine, EngineClient(engine.url, timeout_seconds=5) as client:
        health = EngineHealth(client, runner, model, "attached", RecoveryTime(own=False))

        async def fault() -> str | None:
            health._change(await health._ask())
            return health.fault

        async def unread() -> str | None:
            with monkeypatch.context() as overloaded:
                overloaded.setattr(EngineClient, "look", busy)
                return await fault()

        assert (await unread(), await fault()) == ("engine_down", None)
        engine.serves = ["somebody-else"]
        clock.advance(5)
        assert (await unread(), await fault()) == (None, None)  # the next look is five seconds later
        clock.advance(5)
        assert (await fault(), await unread()) == ("model_missing", "model_missing")
        engine.serves = [MODEL]
        assert await fault() is None
        engine.healthy = False
        assert await fault() == "engine_down"
        engine.healthy, engine.serves = True, ["somebody-else"]
        assert (await unread(), await fault()) == ("engine_down", "model_missing")
