"""During a database outage, synchronous requests with known keys and engines are still answered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from psycopg import OperationalError
from psycopg_pool import AsyncConnectionPool
from psycopg_pool.pool_async import AddConnection
from pydantic import SecretStr

from app import clock
from app.api import app as api
from app.crypto import secret_key
from app.db import embedded, pool, stale_if_error
from app.db.pool import IDLE_SECONDS, Connection, Database
from app.db.stale_if_error import MAX_STALE_SECONDS, StaleIfError
from app.engines import catalogue
from app.engines import service as engines
from app.engines.service import Engine
from app.gateway.engine_directory import BLIND_SECONDS, RETURN_SECONDS, EngineDirectory, updated
from app.queue import reaping
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.key_scope import KeyLimits
from testing.fakes.engine import FakeEngine
from testing.waiting import LIMIT_SECONDS, eventually, in_time, is_ok
from tests.clock import Clock
from tests.gateway.support import Registry, serve
from tests.gpu.world import Running
from workers.gpu.attached_engine import AttachedEngine

RUN = "/client/v4/accounts/acme/ai/run/smollm2-135m-instruct"
QUEUED = {"queueRequest": "true"}
LAPSES = "update worker set lease_until = now() - interval '1 second'"  # the database's own clock is not moved
OUTAGE_SECONDS = 60.0
SAY = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


@pytest.fixture
def own_server(stoppable_server: Settings) -> Settings:
    """An embedded server that may be stopped."""
    return stoppable_server.model_copy(update={"secret_key": SecretStr("test-secret-key-of-at-least-32-bytes!")})


@pytest.fixture
async def clients(
    own_server: Settings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    """Callers with an ordinary key and with a limited one, of an API with one engine behind it."""
    monkeypatch.setattr(api, "_PATIENCE_SECONDS", 1.0)
    async with FakeEngine() as engine, Database.of(own_server, "test") as database:
        await Registry(database).ready(engine, lease_seconds=3600)
        async with database.transaction() as conn:
            pepper = secret_key(own_server)
            keys = [
                str(await tenants.create_key(conn, pepper, "acme", "test", None, limits))
                for limits in (KeyLimits(), KeyLimits(requests=100))
            ]
        async with serve(own_server) as url:
            plain, limited = (
                httpx.AsyncClient(base_url=url, timeout=LIMIT_SECONDS, headers={"authorization": f"Bearer {key}"})
                for key in keys
            )
            async with plain, limited:
                yield plain, limited


async def test_synchronous_calls_go_on_without_the_database_and_submits_are_told_to_come_again(
    clients: tuple[httpx.AsyncClient, httpx.AsyncClient], own_server: Settings, clock: Clock
) -> None:
    plain, limited = clients
    for client in clients:
        assert (await client.post(RUN, json=SAY)).status_code == 200
    await asyncio.to_thread(embedded.stop, own_server, "immediate")
    clock.advance(1.5)  # longer than a key or the list of engines is taken for fresh
    for client in (plain, limited, plain, limited):
        for body in (SAY, SAY | {"stream": True}):
            answer = await client.post(RUN, json=body)
            assert answer.status_code == 200, answer.text
            assert "error" not in answer.text.replace('"errors":[]', "")
    refused = await plain.post(RUN, params=QUEUED, json={"requests": [SAY]})
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")

    await asyncio.to_thread(embedded.start, own_server)
    await eventually(lambda: plain.post(RUN, params=QUEUED, json={"requests": [SAY]}), until=is_ok)
    assert (await limited.post(RUN, json=SAY)).headers["ratelimit-policy"] == '"requests";q=100;w=60'


@asynccontextmanager
async def working(settings: Settings) -> AsyncIterator[None]:
    """A real worker of the engine that the settings name, with the lease that ships, until the block is left."""
    model = catalogue.load(settings.models_file).resolve("smollm2-135m-instruct")
    assert model is not None
    async with Database.of(settings, "gpu test") as database:
        running = Running(settings, database, model, AttachedEngine(settings))
        try:
            await eventually(lambda: ready(database))
            yield
        finally:
            await running.stop()


async def ready(database: Database) -> bool:
    """Whether a worker with a live lease has reported its engine as ready."""
    async with database.durable() as conn:
        sql = "select from engine join worker using (worker_id) where state = 'ready' and lease_until > now()"
        return (await (await conn.execute(sql)).fetchone()) is not None


async def test_no_synchronous_call_fails_in_an_outage_that_is_longer_than_the_workers_lease(
    own_server: Settings, clock: Clock
) -> None:
    answers: list[tuple[float, int, str]] = []

    async def call_on(client: httpx.AsyncClient) -> None:
        while True:
            answer = await client.post(RUN, json=SAY)
            answers.append((clock.monotonic(), answer.status_code, answer.text))
            await asyncio.sleep(0.2)

    async with FakeEngine(latency=0.01) as engine, Database.of(own_server, "test") as database:
        settings = own_server.model_copy(update={"engine_url": engine.url, "worker_metrics_port": 0})
        assert settings.lease_seconds < OUTAGE_SECONDS
        async with database.transaction() as conn:
            key = await tenants.create_key(conn, secret_key(settings), "acme", "test", None, KeyLimits())
        headers = {"authorization": f"Bearer {key}"}
        async with (
            working(settings),
            serve(settings) as url,
            httpx.AsyncClient(base_url=url, timeout=LIMIT_SECONDS, headers=headers) as client,
        ):
            calls = asyncio.create_task(call_on(client))
            await eventually(lambda: len(answers) >= 3)
            await asyncio.to_thread(embedded.stop, settings, "immediate")
            began = clock.monotonic()
            await clock.sleep(OUTAGE_SECONDS)
            await asyncio.to_thread(embedded.start, settings)
            back = clock.monotonic()
            async with in_time(), database.durable() as conn:
                await conn.execute(LAPSES)
                await reaping.reap(conn)  # the steward is there before the worker
            await eventually(lambda: ready(database))
            await clock.sleep(1)
            calls.cancel()
    print(f"{len(answers)} calls, {sum(began < at < back for at, _, _ in answers)} during the outage")
    assert [(f"{at - back:+.1f} s", text) for at, status, text in answers if status != 200] == []
    assert any(at < began for at, _, _ in answers)
    assert any(began + settings.lease_seconds < at < back for at, _, _ in answers)
    assert any(at > back for at, _, _ in answers)


async def test_an_engine_whose_worker_takes_longer_to_come_back_than_the_database_is_called_meanwhile(
    own_server: Settings, clock: Clock
) -> None:
    async with FakeEngine() as engine, Database.of(own_server, "test") as database:
        await Registry(database).ready(engine, lease_seconds=3600)
        async with database.transaction() as conn:
            key = await tenants.create_key(conn, secret_key(own_server), "acme", "test", None, KeyLimits())
        headers = {"authorization": f"Bearer {key}"}
        async with (
            serve(own_server) as url,
            httpx.AsyncClient(base_url=url, timeout=LIMIT_SECONDS, headers=headers) as client,
        ):
            assert (await client.post(RUN, json=SAY)).status_code == 200
            await asyncio.to_thread(embedded.stop, own_server, "immediate")
            await clock.sleep(4)
            await asyncio.to_thread(embedded.start, own_server)
            await eventually(lambda: client.get("/ready"), until=is_ok)
            async with database.durable() as conn:
                await conn.execute(LAPSES)
            assert not await ready(database)
            for _ in range(8):  # for longer than what the database said is taken for fresh
                answer = await client.post(RUN, json=SAY)
                assert answer.status_code == 200, answer.text
                await clock.sleep(0.25)


def test_an_engine_whose_lease_lapses_is_dropped_at_once_or_after_a_database_outage_with_a_delay() -> None:
    held = Engine(
        1, "e", "m", "", None, "attached", 1, "ready", None, 0, datetime.now(UTC), controlled=True, intake="open"
    )
    lapsed = replace(held, controlled=False)
    looked = updated(None, [held], 100, outage=False)
    assert looked.has_worker(held)
    assert not updated(looked, [lapsed], 101, outage=True).has_worker(lapsed)
    blind = updated(looked, [lapsed], 160, outage=True)
    assert blind.has_worker(lapsed)
    assert updated(blind, [lapsed], 160.5 + RETURN_SECONDS / 2, outage=False).has_worker(lapsed)
    late = blind
    for moment in range(161, 162 + int(RETURN_SECONDS)):
        late = updated(late, [lapsed], moment, outage=False)
    assert not late.has_worker(lapsed)
    assert not updated(late, [lapsed], 300, outage=True).has_worker(lapsed)


HELD = Engine(1, "e", "m", "", None, "attached", 1, "ready", None, 0, datetime.now(UTC), controlled=True, intake="open")
LAPSED = replace(HELD, controlled=False)


def test_a_second_outage_before_its_worker_is_back_gives_an_engine_grace_again() -> None:
    first = updated(updated(None, [HELD], 100, outage=False), [LAPSED], 130, outage=True)
    second = updated(first, [LAPSED], 130 + RETURN_SECONDS - 1 + 30, outage=True)
    assert second.has_worker(LAPSED)
    long_after = updated(second, [LAPSED], second.at + RETURN_SECONDS + 1, outage=False)
    assert not updated(long_after, [LAPSED], long_after.at + 30, outage=True).has_worker(LAPSED)


def test_a_worker_that_dies_while_nobody_asks_gets_no_grace() -> None:
    assert not updated(updated(None, [HELD], 100, outage=False), [LAPSED], 160, outage=False).has_worker(LAPSED)


async def test_a_gateway_that_nobody_has_asked_for_long_takes_no_dead_workers_engine_for_ready(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = 1000.0
    monkeypatch.setattr(clock, "monotonic", lambda: moment)
    directory = EngineDirectory(database, refresh_seconds=0)

    async def dead() -> bool:
        return not (await directory.served(engine.model)).ready

    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        assert (await directory.served(engine.model)).ready
        async with database.relaxed() as conn:
            await conn.execute("update worker set lease_until = now() - interval '1 second'")
        moment += BLIND_SECONDS + 0.2
        await eventually(dead)


@pytest.mark.parametrize("fails", [True, False])
async def test_a_look_that_failed_or_took_long_counts_as_an_outage(
    database: Database, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    directory, hang, looks, moment = EngineDirectory(database, refresh_seconds=0), asyncio.Event(), 0, 1000.0
    monkeypatch.setattr(clock, "monotonic", lambda: moment)
    ask = engines.list_engines

    async def slow(conn: Connection) -> list[Engine]:
        nonlocal looks
        looks += 1
        await hang.wait()
        if fails and looks == 2:
            raise OperationalError
        return await ask(conn)

    monkeypatch.setattr(engines, "list_engines", slow)
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        hang.set()
        assert (await directory.served(engine.model)).ready
        async with database.relaxed() as conn:
            await conn.execute("update worker set lease_until = now() - interval '1 second'")
        hang.clear()
        assert (await directory.served(engine.model)).ready  # what was said before
        moment += BLIND_SECONDS + 0.2
        hang.set()

        async def lapsed() -> bool:
            assert (await directory.served(engine.model)).ready
            return not directory._list.last.engines[0].controlled  # type: ignore[union-attr]

        await eventually(lapsed)
        assert (await directory.served(engine.model)).ready


async def test_a_pool_whose_connections_were_all_lost_gives_one_out_soon_after_a_long_outage(
    own_server: Settings, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    schedule, again = AsyncConnectionPool.schedule_task, pool._reconnect

    async def soon(self: AsyncConnectionPool[Any], task: Any, delay: float) -> None:
        if isinstance(task, AddConnection):
            pauses.append(delay)
            delay = 0.05
        await schedule(self, task, delay)

    async def given_up(lost: AsyncConnectionPool[Any]) -> None:
        pauses.append(0)
        await again(lost)

    monkeypatch.setattr(AsyncConnectionPool, "schedule_task", soon)
    monkeypatch.setattr(pool, "_reconnect", given_up)
    async with Database.of(own_server, "test", patience_seconds=LIMIT_SECONDS) as database:

        async def hold(everybody: asyncio.Barrier) -> None:
            async with database.durable() as conn:
                await conn.execute("select")
                await everybody.wait()

        everybody = asyncio.Barrier(own_server.database_pool_size)
        await asyncio.gather(*(hold(everybody) for _ in range(own_server.database_pool_size)))
        await asyncio.to_thread(embedded.stop, own_server, "immediate")
        clock.advance(IDLE_SECONDS + 0.1)  # from then on a connection is looked at before it is handed out
        waiting = asyncio.create_task(hold(asyncio.Barrier(1)))
        await eventually(lambda: pauses.count(0) >= 2)  # so often did it give up and begin anew
        await asyncio.to_thread(embedded.start, own_server)
        async with in_time():
            await waiting
    assert max(pauses) <= pool.RECONNECT_SECONDS


async def test_what_was_said_is_believed_while_nobody_answers_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    now, answers = 1000.0, ["first"]
    monkeypatch.setattr(stale_if_error.clock, "monotonic", lambda: now)
    memory = StaleIfError[str]()

    async def ask() -> str:
        if not answers:
            raise OperationalError
        return answers.pop()

    assert await memory.get(ask, 1) == "first"
    answers.append("second")
    assert await memory.get(ask, 1) == "first"
    now += 1
    assert await memory.get(ask, 1) == "second"
    now += MAX_STALE_SECONDS
    assert await memory.get(ask, 1) == "second"
    now += 1
    with pytest.raises(OperationalError):
        await memory.get(ask, 1)


async def test_who_asks_a_database_that_hangs_waits_once_and_gets_what_was_said_before() -> None:
    memory, asked, hanging = StaleIfError[str](), 0, asyncio.Event()

    async def ask() -> str:
        nonlocal asked
        asked += 1
        if asked > 1:
            await hanging.wait()
        return f"answer {asked}"

    assert await memory.get(ask, 0) == "answer 1"
    assert await asyncio.gather(*(memory.get(ask, 0) for _ in range(10))) == ["answer 1"] * 10
    assert asked == 2
    hanging.set()
    await asyncio.sleep(0.01)
    assert memory.last == "answer 2"
