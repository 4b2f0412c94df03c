"""What a worker says and does about an engine that it cannot use."""

import asyncio

import pytest
from structlog.testing import capture_logs

from app.processes import free_port
from tests.gpu.conftest import MODEL, World


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.gpu.health.HEALTH_SECONDS", 0.05)
    monkeypatch.setattr("workers.gpu.health.PATIENCE_SECONDS", 0.3)


async def test_an_engine_that_was_down_from_the_start_is_mentioned_once(world: World) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with capture_logs() as said:
        async with world.worker(engine_url=url):
            await asyncio.sleep(0.8)
    assert [line["url"] for line in said if line["event"] == "engine.not_reachable"] == [url]


async def test_an_engine_without_the_model_is_asked_for_nothing_until_it_has_it(world: World) -> None:
    world.engine.serves = ["org/one", "org/two"]
    batch = await world.submit(["hi"])
    with capture_logs() as said:
        async with world.worker():
            await world.until("exists (select from engine where state = 'down' and reason = 'model_missing')")
            await asyncio.sleep(0.3)
            assert not world.engine.count
            world.engine.serves = ["org/one", MODEL]
            await world.finished(batch)
    missing = [line for line in said if line["event"] == "engine.model_missing"]
    assert [(line["wanted"], line["serves"]) for line in missing] == [(MODEL, ["org/one", "org/two"])]
    assert world.engine.bodies[0]["model"] == MODEL
