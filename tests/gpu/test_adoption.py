"""An engine attached as it is: adopted by its own name, stopped when it becomes another, held to what it promised."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from app import processes
from app.crypto import secret_key
from app.db.pool import Database
from app.engines import overview as engine_overview
from app.engines import service as engines
from app.engines.catalogue import Model
from app.queue import service as queue
from app.settings import Settings
from app.tenants import service as tenants
from app.user_errors import Failure
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually, in_time, is_ok
from tests.api import in_process
from tests.clock import Clock
from tests.gpu.world import MODEL, Running, World
from workers.gpu import model_adoption
from workers.gpu.attached_engine import AttachedEngine
from workers.gpu.engine_health import EngineHealth
from workers.gpu.tuning import WorkerTuning

QUICK = WorkerTuning(health_seconds=0.05, inspection_seconds=0.05, adoption_seconds=0.05)
THEIRS = "org/their-name"
AI = "/client/v4/accounts/acme/ai"
HELLO = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.engines.model_registry.REFRESH_SECONDS", 0.05)


@asynccontextmanager
async def attached(settings: Settings, **changes: Any) -> AsyncIterator[Running]:
    """`slackwater gpu-worker` in this process."""
    settings = settings.model_copy(update=changes)
    async with Database.of(settings, "gpu test") as database:
        model = await model_adoption.model_of(settings, database, asyncio.Event(), QUICK)
        assert model is not None
        running = Running(settings, database, model, AttachedEngine(settings), QUICK)
        try:
            yield running
        finally:
            await running.stop()


@asynccontextmanager
async def api(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """The API with a key of `acme`."""
    async with world.database.transaction() as conn:
        key = await tenants.create_key(conn, secret_key(world.settings), "acme", "test")
    async with in_process.running(world.settings, str(key)) as (_, client):
        yield client


async def answered(client: httpx.AsyncClient, model: str) -> list[Any]:
    """The responses of a batch of one."""
    route = f"{AI}/run/{model}"
    queued = (await client.post(route, params={"queueRequest": "true"}, json={"requests": [HELLO]})).json()["result"]
    final = await eventually(lambda: client.post(route, json=queued), until=is_final)
    return list(final.json()["result"]["responses"])


def is_final(answer: httpx.Response) -> bool:
    return "responses" in answer.json()["result"]


def engine_row(condition: str, name: str = "engine-0") -> str:
    return f"exists (select from engine where name = '{name}' and {condition})"


async def problem(world: World, name: str = "engine-0") -> dict[str, str]:
    [(problems,)] = await world.fetch("select problems from engine where name = %s", name)
    [found] = problems
    return dict(found)


async def test_a_renamed_engine_is_adopted_by_models_batches_and_the_gateway(world: World) -> None:
    world.engine.serves, world.engine.window = [THEIRS], 4096
    async with api(world) as client, attached(world.settings):
        await world.until(engine_row("state = 'ready'"))
        one = await eventually(
            lambda: client.get(f"/v1/models/{THEIRS}"), until=lambda answer: answer.status_code == 200
        )
        assert one.json()["max_model_len"] == 4096
        listed = [model["id"] for model in (await client.get("/v1/models")).json()["data"]]
        assert THEIRS in listed
        searched = (await client.get(f"{AI}/models/search", params={"search": THEIRS})).json()["result"]
        assert [model["name"] for model in searched] == [THEIRS]
        [response] = await answered(client, THEIRS)
        assert response["success"]
        chat = await client.post("/v1/chat/completions", json={"model": THEIRS, **HELLO})
        assert chat.status_code == 200, chat.text
    assert [body["model"] for body in world.engine.bodies] == [THEIRS, THEIRS]


async def test_an_alias_of_the_catalogue_is_what_the_gateway_asks_the_engine_for(world: World) -> None:
    alias = "HuggingFaceTB/SmolLM2-135M-Instruct"
    world.engine.serves = [alias]
    async with api(world) as client, attached(world.settings):
        await world.until(engine_row(f"state = 'ready' and served_name = '{alias}'"))
        chat = await client.post("/v1/chat/completions", json={"model": MODEL, **HELLO})
        assert chat.status_code == 200, chat.text
        [response] = await answered(client, MODEL)
        assert response["success"]
    assert {body["model"] for body in world.engine.bodies} == {alias}


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"serves": ["somebody-else"]}, "model_missing", ["somebody-else", THEIRS]),
        ({"window": 1024}, "window_too_small", ["1024", "4096"]),
    ],
)
async def test_an_engine_that_came_back_as_another_gets_nothing_until_it_is_right_again(
    world: World, clock: Clock, changes: dict[str, Any], code: str, words: list[str]
) -> None:
    world.engine.serves, world.engine.window = [THEIRS], 4096
    async with api(world) as client, attached(world.settings, lease_seconds=60):
        await world.until(engine_row("state = 'ready'"))
        for name, value in changes.items():
            setattr(world.engine, name, value)
        await world.until(engine_row(f"state = 'down' and reason = '{code}'"))
        found = await problem(world)
        assert all(word in found["message"] for word in words)
        assert found["remedy"]
        route = f"{AI}/run/{THEIRS}"
        body = {"requests": [HELLO]}
        queued = (await client.post(route, params={"queueRequest": "true"}, json=body)).json()["result"]
        call = asyncio.create_task(client.post("/v1/chat/completions", json={"model": THEIRS, **HELLO}))
        await clock.sleep(3)
        assert (await call).status_code == 503
        [shown] = (each for each in (await client.get("/status")).json()["problems"] if each["code"] == code)
        assert (shown["message"], shown["remedy"]) == (found["message"], found["remedy"])
        polled = (await client.post(route, json=queued)).json()["result"]
        assert polled["waiting"]["code"] == code
        assert code != "window_too_small" or "1,024 tokens, promised 4,096 tokens" in polled["waiting"]["message"]
        assert not world.engine.bodies
        world.engine.serves, world.engine.window = [THEIRS], 4096
        await eventually(lambda: client.post(route, json=queued), until=is_final)


async def test_of_two_engines_under_one_name_the_one_with_the_smaller_window_is_refused(world: World) -> None:
    async with FakeEngine(model=THEIRS) as small, FakeEngine(model=THEIRS) as large:
        world.engine.serves = [THEIRS]
        world.engine.window, small.window, large.window = 4096, 2048, 8192
        async with attached(world.settings):
            await world.until(engine_row("state = 'ready'"))
            async with attached(world.settings, engine_url=large.url, engine_name="large"):
                with pytest.raises(Failure, match=r"2048 tokens; .* promised with 4096"):
                    async with attached(world.settings, engine_url=small.url, engine_name="small"):
                        pass
                row = "worker_id is null and state = 'down' and reason = 'window_too_small'"
                assert await world.fetch(f"select {engine_row(row, 'small')}") == [(True,)]
                await world.until(engine_row("state = 'ready'", "large"))
                await world.until(engine_row("state = 'ready'"))
                found = await problem(world, "small")
    assert "2048" in found["message"]
    assert "4096" in found["message"]
    assert "--max-model-len 4096" in found["remedy"]
    assert await world.fetch("select context_window from pool where model = %s", THEIRS) == [(4096,)]


async def promised(world: World, window: int) -> int:
    """The window in force after an engine with this one has joined alone."""
    world.engine.window = window
    async with attached(world.settings):
        await world.until(engine_row("worker_id is not null"))
        [(found,)] = await world.fetch("select context_window from pool where model = %s", THEIRS)
    return int(found)


async def test_a_promise_is_lowered_only_when_nobody_relies_on_it(world: World) -> None:
    world.engine.serves = [THEIRS]
    assert await promised(world, 4096) == 4096
    assert await promised(world, 8192) == 8192
    pool = await world.fetch("select pool_id from pool where model = %s", THEIRS)
    world.pool = pool[0][0]
    batch = await world.submit(["hi"])
    with pytest.raises(Failure, match=r"2048 tokens; .* promised with 8192"):
        await promised(world, 2048)
    assert await world.fetch("select context_window from pool where model = %s", THEIRS) == [(8192,)]
    world.engine.window = 8192
    async with attached(world.settings):
        await world.finished(batch)
    assert await promised(world, 2048) == 2048


async def test_the_gate_is_shut_until_the_engine_was_held_against_the_window_in_force(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The promise grew after the worker had looked at its engine."""
    world.engine.serves, world.engine.window = [THEIRS], 2048
    faults: list[tuple[bool, str | None]] = []
    real = EngineHealth.expect

    async def unasked(settings: Settings, database: Database, model: Model, seen: object) -> Model:
        return model

    monkeypatch.setattr(model_adoption, "_checked", unasked)
    await world.fetch("insert into pool (model, context_window) values (%s, 4096) returning 1", THEIRS)
    world.pool = (await world.fetch("select pool_id from pool where model = %s", THEIRS))[0][0]
    await world.submit(["hi"])
    async with attached(world.settings) as running:
        worker = running.worker

        def expect(health: EngineHealth, window: int) -> None:
            real(health, window)
            faults.append((worker._membership.controls.is_set(), health.fault))

        monkeypatch.setattr(EngineHealth, "expect", expect)
        await world.until(engine_row("state = 'down' and reason = 'window_too_small'"))
    assert [controls for controls, _ in faults] == [False]
    assert not world.engine.bodies


async def test_a_worker_whose_engine_contradicts_refuses_to_start_and_lets_everybody_know(world: World) -> None:
    world.engine.serves = [THEIRS]
    with pytest.raises(Failure) as refusal:
        async with attached(world.settings, engine_model=MODEL):
            pass
    assert refusal.value.problem == f"The engine serves {THEIRS}, not {MODEL}."
    assert f"SLACKWATER_ENGINE_MODEL={THEIRS}" in refusal.value.remedy
    assert (await problem(world))["code"] == "model_missing"
    async with world.database.durable() as conn:
        [told] = await engine_overview.recent_engines(conn)
    assert (told.model, told.state, told.reason, told.alive) == (None, "down", "model_missing", False)


@pytest.mark.parametrize("differs", ["url", "model"])
async def test_a_worker_for_another_engine_of_a_name_in_use_refuses(world: World, differs: str) -> None:
    lease = {"lease_seconds": 5, "heartbeat_seconds": 0.1}
    async with FakeEngine(model=THEIRS) as other, attached(world.settings, **lease):
        await world.until(engine_row("state = 'ready'"))
        wrong = {"engine_url": other.url}
        if differs == "model":
            world.engine.serves, wrong = [THEIRS], {}
        with pytest.RaisesGroup(Failure) as refusal:
            async with attached(world.settings, **lease, **wrong) as second, in_time():
                await second.task
        [failure] = refusal.value.exceptions
        assert "engine-0" in failure.problem
        assert THEIRS in failure.problem
        assert "SLACKWATER_ENGINE_NAME=engine-1" in failure.remedy
        assert await world.fetch("select url from engine") == [(world.settings.engine_url,)]


async def test_a_worker_whose_engine_is_away_refuses_too_if_its_name_is_taken_and_says_by_whom(world: World) -> None:
    lease = {"lease_seconds": 5, "heartbeat_seconds": 0.1}
    async with attached(world.settings, **lease):
        await world.until(engine_row("state = 'ready'"))
        away = world.settings.model_copy(update={"engine_url": f"http://127.0.0.1:{processes.free_port()}"})
        with pytest.raises(Failure, match=rf"engine-0 is taken: worker \d+ \(host .*, pid {os.getpid()}\)") as refusal:
            async with in_time():
                await model_adoption.model_of(away, world.database, asyncio.Event(), QUICK)
        assert world.settings.engine_url in refusal.value.problem


async def test_a_worker_that_stands_by_says_behind_whom(world: World) -> None:
    async with attached(world.settings):
        await world.until(engine_row("state = 'ready'"))
        with capture_logs() as logs:
            async with attached(world.settings, engine_name="second"):
                [said] = await eventually(lambda: [each for each in logs if each["event"] == "worker.standing_by"])
        assert re.fullmatch(rf"worker \d+ \(host .*, pid {os.getpid()}\), engine engine-0", said["behind"])


async def test_a_worker_stands_by_for_the_same_engine_and_for_a_dead_one_under_another_url(world: World) -> None:
    lease = {"lease_seconds": 5, "heartbeat_seconds": 0.1}
    async with attached(world.settings, **lease) as first:
        await world.until(engine_row("state = 'ready'"))
        async with attached(world.settings, **lease) as second:
            await world.until("count(*) = 2 from worker where lease_until > now()")
            ids = "select last_value from engine_engine_id_seq"
            before = await world.fetch(ids)
            await world.until("count(*) = 2 from worker where lease_until > now()")
            assert await world.fetch(ids) == before, "who stands by uses no id up"
            await first.stop()
            await world.until(engine_row("state = 'ready' and worker_id = (select max(worker_id) from worker)"))
            assert not second.task.done()
    async with world.database.durable() as conn:
        pool = await engines.ensure_pool(conn, MODEL)
        dead = await queue.register_worker(conn, pool_id=pool, host="h", pid=1, lease_seconds=1.5)
        await engines.take_engine(
            conn, name="engine-0", pool_id=pool, url="http://gone:1", mode="attached", worker_id=dead
        )
    async with attached(world.settings, **lease):
        await world.until(engine_row(f"state = 'ready' and url = '{world.settings.engine_url}'"))


async def test_a_worker_waits_for_an_engine_that_comes_later_and_adopts_it(world: World) -> None:
    port = processes.free_port()
    url = f"http://127.0.0.1:{port}"
    settings = world.settings.model_copy(update={"engine_url": url})
    waiting = asyncio.create_task(model_adoption.model_of(settings, world.database, asyncio.Event()))
    await world.until(engine_row("state = 'down' and reason = 'engine_down' and pool_id is null"))
    assert not waiting.done()
    async with FakeEngine(model=THEIRS, port=port), in_time():
        model = await waiting
    assert model is not None
    assert (model.name, model.context_window) == (THEIRS, 8192)


async def test_a_worker_that_waits_for_its_engine_can_be_stopped(world: World) -> None:
    stop = asyncio.Event()
    settings = world.settings.model_copy(update={"engine_url": f"http://127.0.0.1:{processes.free_port()}"})
    waiting = asyncio.create_task(model_adoption.model_of(settings, world.database, stop))
    await world.until(engine_row("reason = 'engine_down'"))
    stop.set()
    async with in_time():
        assert await waiting is None


async def test_an_engine_without_priority_scheduling_is_used_and_complained_of(world: World) -> None:
    world.engine.policy = "fcfs"
    async with attached(world.settings):
        await world.until(engine_row("state = 'ready' and scheduling_policy = 'fcfs'"))
        assert (await problem(world))["code"] == "no_priority_scheduling"


async def test_an_embedding_engine_is_adopted_as_one(world: World) -> None:
    world.engine.serves, world.engine.pooling = [THEIRS], True
    async with api(world) as client, attached(world.settings):
        await world.until(engine_row("state = 'ready'"))
        await eventually(lambda: client.get(f"/v1/models/{THEIRS}"), until=is_ok)
        made = await client.post("/v1/embeddings", json={"model": THEIRS, "input": "a tide"})
        assert made.status_code == 200, made.text


async def test_an_engine_that_wants_a_key_is_refused_without_and_adopted_with_it(world: World) -> None:
    world.engine.serves, world.engine.key = [THEIRS], "secret"
    with pytest.raises(Failure, match="refuses our key") as refusal:
        async with attached(world.settings):
            pass
    assert "SLACKWATER_ENGINE_API_KEY" in refusal.value.remedy
    async with attached(world.settings, engine_api_key=SecretStr("secret")):
        await world.until(engine_row("state = 'ready'"))
        world.engine.key = "another"
        await world.until(engine_row("state = 'down' and reason = 'key_refused'"))


async def test_an_engine_that_does_not_list_its_models_has_to_be_named(world: World) -> None:
    world.engine.serves = []
    with pytest.raises(Failure, match="does not say what it serves") as refusal:
        async with attached(world.settings):
            pass
    assert "SLACKWATER_ENGINE_MODEL" in refusal.value.remedy
    batch = await world.submit(["hi"])
    async with attached(world.settings, engine_model=MODEL):
        await world.finished(batch)
    assert world.engine.bodies[0]["model"] == MODEL
