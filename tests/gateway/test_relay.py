"""Claims about the relay: which engine it uses, when it tries another one, and what the worker is sent."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from app.crypto import secret_key
from app.db.pool import Database
from app.engines import service as engines
from app.engines.engine_key import engine_key
from app.errors import ExecutionFailed, NoCapacity, TimedOut
from app.gateway.relay import Gateway, SyncCall
from app.gateway.sse_frames import SseEvent
from app.queue import service as queue
from app.settings import Settings
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually, in_time
from tests.gateway.support import FakeWorker, Registry
from tests.queue import support


async def listen(gateway: Gateway, call: SyncCall) -> list[SseEvent]:
    return [event async for event in gateway.stream(call)]


async def test_the_worker_is_told_before_the_engine_gets_the_request(
    gateway: Gateway, registry: Registry, call: SyncCall, worker: FakeWorker
) -> None:
    async with FakeEngine() as engine:
        came: list[int] = []
        worker.before = lambda: came.append(engine.count.total())
        await registry.ready(engine, arrival_url=worker.url)
        await listen(gateway, call)
        await worker.event("finished")
    assert came[0] == 0
    arrived, first, finished = worker.events
    assert {**arrived, "id": ""} == {
        "id": "", "event": "arrived", "class": "sync", "prompt_tokens": 12, "max_tokens": 34,
    }  # fmt: skip
    assert (first["event"], first["ttft_ms"] > 0, finished["output_tokens"]) == ("first_token", True, 4)
    assert 0 <= finished["itl_p50_ms"] <= finished["itl_p95_ms"]
    assert len({event["id"] for event in worker.events}) == 1


async def test_of_a_call_that_does_not_stream_the_first_token_is_told_at_the_end_without_a_time(
    gateway: Gateway, registry: Registry, call: SyncCall, worker: FakeWorker
) -> None:
    async with FakeEngine() as engine:
        await registry.ready(engine, arrival_url=worker.url)
        await gateway.complete(call)
        assert (await worker.event("first_token"))["ttft_ms"] is None
        finished = await worker.event("finished")
    assert (finished["output_tokens"], finished["itl_p50_ms"]) == (4, None)


async def test_calls_of_two_accounts_never_share_a_salt_and_those_of_one_do(
    gateway: Gateway, registry: Registry, call: SyncCall
) -> None:
    async with FakeEngine() as engine:
        await registry.ready(engine)
        for each in (call, replace(call, tenant_id=call.tenant_id + 1), call):
            await gateway.complete(each)
        first, others, again = (body["cache_salt"] for body in engine.bodies)
    assert first == again != others


@pytest.mark.parametrize("trouble", ["deaf", "refuses", "gone"])
async def test_a_worker_that_cannot_be_told_fails_no_request_and_is_left_alone_for_a_while(
    settings: Settings,
    database: Database,
    registry: Registry,
    call: SyncCall,
    worker: FakeWorker,
    trouble: str,
) -> None:
    worker.deaf, worker.status = trouble == "deaf", 500
    url = "http://127.0.0.1:9" if trouble == "gone" else worker.url
    own = settings.model_copy(update={"announce_rest_seconds": 3600})
    async with FakeEngine() as engine, Gateway(own, database, secret_key(own)) as gateway:
        await registry.ready(engine, arrival_url=url)
        async with in_time():
            for _ in range(3):
                assert b"echo: hello" in await gateway.complete(call)
        if trouble == "refuses":
            assert worker.messages == 1
        assert engine.finished.total() == 3


async def test_a_worker_hears_of_the_end_when_the_caller_goes(
    gateway: Gateway, registry: Registry, call: SyncCall, worker: FakeWorker
) -> None:
    async with FakeEngine() as engine:
        engine.script({"mode": "hang", "after": 2})
        await registry.ready(engine, arrival_url=worker.url)
        events = gateway.stream(call)
        for _ in range(3):
            await anext(events)
        await events.aclose()
        assert (await worker.event("finished"))["output_tokens"] == 2
        await eventually(lambda: engine.aborted)


async def test_requests_are_spread_over_ready_engines_and_a_session_stays_on_one(
    gateway: Gateway, registry: Registry, call: SyncCall
) -> None:
    async with FakeEngine() as one, FakeEngine() as two:
        await registry.ready(one, "one")
        await registry.ready(two, "two")
        for _ in range(10):
            await gateway.complete(call)
        assert (one.finished.total(), two.finished.total()) == (5, 5)
        for _ in range(10):
            await gateway.complete(replace(call, session="s"))
        assert Counter([one.finished.total(), two.finished.total()]) == {15: 1, 5: 1}


@pytest.mark.parametrize("rule", [{"status": 503}, {"status": 401}, {"status": 429}])
@pytest.mark.parametrize("stream", [True, False])
async def test_an_engine_that_does_not_take_the_request_passes_it_on_once(
    gateway: Gateway, registry: Registry, call: SyncCall, rule: dict[str, Any], stream: bool
) -> None:
    async with FakeEngine() as one, FakeEngine() as two:
        one.script({"mode": "status", **rule})
        await registry.ready(one, "one")
        await registry.ready(two, "two")
        for _ in range(2):
            await (listen(gateway, call) if stream else gateway.complete(call))
        assert two.finished.total() == 2
        two.script({"mode": "status", **rule})
        with pytest.raises(NoCapacity):
            await gateway.complete(call)


async def test_an_engine_that_is_gone_passes_it_on(gateway: Gateway, registry: Registry, call: SyncCall) -> None:
    async with FakeEngine() as two:
        async with FakeEngine() as one:
            await registry.ready(one, "one")
        await registry.ready(two, "two")
        for _ in range(4):
            await listen(gateway, call)
        assert two.finished.total() == 4


async def test_engines_that_are_gone_are_no_tries_however_many(
    gateway: Gateway, registry: Registry, call: SyncCall
) -> None:
    async with FakeEngine() as alive:
        for name in ("one", "two", "three"):
            async with FakeEngine() as gone:
                await registry.ready(gone, name)
        await registry.ready(alive, "zero")
        answers = await asyncio.gather(*(gateway.complete(call) for _ in range(8)))
        assert len(answers) == alive.finished.total() == 8


async def test_a_request_whose_engine_is_lost_waits_for_room_at_the_other(
    gateway: Gateway, registry: Registry, call: SyncCall
) -> None:
    async with FakeEngine(latency=0.2) as full, FakeEngine() as doomed:
        doomed.script({"mode": "die"})
        await registry.ready(full, "full", slots=1)
        await registry.ready(doomed, "doomed")
        answers = await asyncio.gather(*(gateway.complete(call) for _ in range(4)))
        assert all(b"echo: hello" in answer for answer in answers)
        assert doomed.count.total() >= 3
        assert (full.peak, full.finished.total()) == (1, 4)


@pytest.mark.parametrize(
    "rule", [{"mode": "die"}, {"mode": "status", "status": 500, "message": "EngineCore encountered an issue"}]
)
async def test_a_request_whose_engine_is_lost_before_it_answers_is_given_to_one_other_and_no_further(
    gateway: Gateway, registry: Registry, call: SyncCall, rule: dict[str, Any]
) -> None:
    async with FakeEngine() as one, FakeEngine() as two, FakeEngine() as three:
        for name, engine in (("one", one), ("two", two), ("three", three)):
            engine.script(rule)
            await registry.ready(engine, name)
        with pytest.raises(ExecutionFailed):
            await gateway.complete(call)
        with pytest.raises(ExecutionFailed):
            await listen(gateway, call)
        assert one.count.total() + two.count.total() + three.count.total() == 4
        for engine in (two, three):
            engine.script()
        for _ in range(3):
            assert b"echo: hello" in await gateway.complete(call)
            assert (await listen(gateway, call))[-1].error is None


async def test_a_stream_whose_engine_is_lost_after_its_first_event_ends_in_an_error_and_goes_nowhere_else(
    gateway: Gateway, registry: Registry, call: SyncCall
) -> None:
    async with FakeEngine() as one, FakeEngine() as two:
        for name, engine in (("one", one), ("two", two)):
            engine.script({"mode": "die", "after": 2})
            await registry.ready(engine, name)
        *said, last = await listen(gateway, call)
        assert said
        assert last.error is not None
        assert one.count.total() + two.count.total() == 1


async def test_an_engine_that_is_silent_for_too_long_is_a_timeout(
    settings: Settings, database: Database, registry: Registry, call: SyncCall
) -> None:
    own = settings.model_copy(update={"request_timeout_seconds": 0.2})
    async with FakeEngine() as engine, Gateway(own, database, secret_key(own)) as gateway:
        engine.script({"mode": "hang"})
        await registry.ready(engine)
        with pytest.raises(TimedOut):
            await gateway.complete(call)
        with pytest.raises(TimedOut):
            await listen(gateway, call)


async def test_only_engines_that_are_ready_under_a_live_controller_are_asked(
    settings: Settings, database: Database, registry: Registry, call: SyncCall
) -> None:
    own = settings.model_copy(update={"gateway_refresh_seconds": 1e-9, "line_seconds": 0})
    async with FakeEngine() as engine, Gateway(own, database, secret_key(own)) as gateway:
        engine_id, worker_id = await registry.ready(engine)
        await gateway.complete(call)
        async with database.durable() as conn:
            await support.report_engine(conn, engine_id, worker_id, ready=False, reason="down", allowance=0)
        with pytest.raises(NoCapacity):
            await gateway.complete(call)
        async with database.durable() as conn:
            await support.report_engine(conn, engine_id, worker_id, ready=True, reason=None, allowance=0)
        await gateway.complete(call)
        async with database.durable() as conn:
            await queue.retire_worker(conn, worker_id)
        with pytest.raises(NoCapacity):
            await gateway.complete(call)


async def test_a_drained_engine_gets_no_new_request_and_nobody_waits_for_it(
    settings: Settings, database: Database, registry: Registry, call: SyncCall
) -> None:
    own = settings.model_copy(update={"gateway_refresh_seconds": 0, "line_seconds": 3600})
    async with FakeEngine() as one, FakeEngine() as two, Gateway(own, database, secret_key(own)) as gateway:
        await registry.ready(one, "one")
        await registry.ready(two, "two")
        async with database.durable() as conn:
            await engines.change_intake(conn, "one", "drain")
        for _ in range(4):
            await gateway.complete(call)
        assert (one.count.total(), two.count.total()) == (0, 4)
        async with database.durable() as conn:
            await engines.change_intake(conn, "two", "drain now")
        with pytest.raises(NoCapacity) as refused:
            await gateway.complete(call)
        assert refused.value.status == 503
        async with database.durable() as conn:
            await engines.change_intake(conn, "one", "undrain")
        await gateway.complete(call)
        assert one.count.total() == 1


async def test_the_database_is_not_asked_for_every_request(
    settings: Settings, database: Database, registry: Registry, call: SyncCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    real = engines.list_engines

    async def counted(conn: Any) -> Any:
        nonlocal asked
        asked += 1
        return await real(conn)

    monkeypatch.setattr(engines, "list_engines", counted)
    own = settings.model_copy(update={"gateway_refresh_seconds": 3600})
    async with FakeEngine() as engine, Gateway(own, database, secret_key(own)) as gateway:
        await registry.ready(engine)
        await asyncio.gather(*(gateway.complete(call) for _ in range(20)))
    assert asked == 1


async def test_an_attached_engines_key_is_shown_to_it(
    settings: Settings, database: Database, registry: Registry, call: SyncCall
) -> None:
    own = Settings(**{**settings.model_dump(), "engine_api_key": "engine-key"})
    async with FakeEngine() as engine, Gateway(own, database, secret_key(own)) as gateway:
        await registry.ready(engine)
        await gateway.complete(call)
        await listen(gateway, call)
        assert engine.keys == ["Bearer engine-key"] * 2


async def test_a_managed_engine_is_shown_its_own_key_and_not_the_attached_ones(
    settings: Settings, database: Database, registry: Registry, call: SyncCall
) -> None:
    own = Settings(**{**settings.model_dump(), "engine_api_key": "engine-key"})
    async with FakeEngine() as engine, Gateway(own, database, secret_key(own)) as gateway:
        await registry.ready(engine)
        async with database.durable() as conn:
            await conn.execute("update engine set mode = 'managed'")
        await gateway.complete(call)
        assert engine.keys == [f"Bearer {engine_key(own, secret_key(own), 'engine-0', 'managed')}"]


async def test_a_full_engines_requests_wait_in_line_and_hurried_ones_are_refused_at_once(
    gateway: Gateway, registry: Registry, call: SyncCall
) -> None:
    async with FakeEngine(latency=0.2) as engine:
        await registry.ready(engine, slots=1)
        tasks = [asyncio.create_task(gateway.complete(call)) for _ in range(3)]
        await eventually(lambda: engine.running)
        with pytest.raises(NoCapacity) as refused:
            await gateway.complete(replace(call, hurried=True))
        assert refused.value.status == 429
        await asyncio.gather(*tasks)
        assert (engine.peak, engine.finished.total()) == (1, 3)


async def test_a_request_waits_for_an_engine_that_is_coming_back(
    gateway: Gateway, registry: Registry, database: Database, call: SyncCall
) -> None:
    async with FakeEngine() as engine:
        engine_id, worker_id = await registry.ready(engine)
        async with database.durable() as conn:
            await support.report_engine(conn, engine_id, worker_id, ready=False, reason="engine_down", allowance=0)
        waiting = asyncio.create_task(gateway.complete(call))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        async with database.durable() as conn:
            await support.report_engine(conn, engine_id, worker_id, ready=True, reason=None, allowance=0)
        assert b"echo: hello" in await waiting


async def test_whose_patience_ends_in_line_is_told_that_capacity_is_exceeded(
    settings: Settings, database: Database, registry: Registry, call: SyncCall
) -> None:
    own = settings.model_copy(update={"line_seconds": 0.1})
    async with FakeEngine(latency=5) as engine, Gateway(own, database, secret_key(own)) as gateway:
        await registry.ready(engine, slots=1)
        first = asyncio.create_task(gateway.complete(call))
        await eventually(lambda: engine.running)
        with pytest.raises(NoCapacity, match="Capacity temporarily exceeded"):
            await gateway.complete(call)
        first.cancel()


async def test_sessions_prefer_the_engine_that_knows_them_until_it_has_more_than_its_share(
    gateway: Gateway, registry: Registry, call: SyncCall
) -> None:
    async with FakeEngine(latency=0.3) as one, FakeEngine(latency=0.3) as two:
        await registry.ready(one, "one")
        await registry.ready(two, "two")
        await asyncio.gather(*(gateway.complete(replace(call, session="s")) for _ in range(16)))
        assert sorted((one.finished.total(), two.finished.total())) == [6, 10]
