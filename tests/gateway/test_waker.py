"""Claims about who is woken when work comes."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from aiohttp import web

from app.db.pool import Connection, Database
from app.engines.service import ensure_pool
from app.gateway.relay import Gateway
from app.gateway.waker import CALL_SECONDS, MOST_WOKEN
from app.queue import wakes
from app.settings import Settings
from testing.waiting import eventually
from tests.gateway.support import Registry
from tests.queue.support import make_tenant, report_engine, submit
from workers.steward.rest import CALM_SECONDS
from workers.steward.worker_calls import WorkerCalls

MODEL = "smollm2-135m-instruct"


class Workers:
    """Workers of engines of MODEL. `woken`: how often each was."""

    def __init__(self, database: Database, registry: Registry) -> None:
        self._database, self._registry = database, registry
        self.woken: Counter[str] = Counter()
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        """POST /NAME/arrivals."""
        async for line in request.content:
            if orjson.loads(line) == {"event": "wake"}:
                self.woken[request.match_info["name"]] += 1
        return web.Response(status=204)

    async def add(self, *names: str, hungry: bool, **values: Any) -> None:
        """Workers that have reported, and hear at a URL of their own."""
        for name in names:
            engine: Any = SimpleNamespace(url=f"http://{name}", model=MODEL)
            ids = await self._registry.ready(engine, name, arrival_url=f"{self.url}/{name}")
            async with self._database.durable() as conn:
                said = {"ready": True, "reason": None, "allowance": 8, "hungry": hungry, **values}
                await report_engine(conn, *ids, **said)

    async def until_woken(self, times: int) -> None:
        await eventually(lambda: self.woken.total() >= times)


@pytest.fixture
async def workers(database: Database, registry: Registry) -> AsyncIterator[Workers]:
    workers, app = Workers(database, registry), web.Application()
    app.router.add_post("/{name}/arrivals", workers.take)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    workers.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield workers
    await runner.cleanup()


async def test_only_a_worker_that_waits_for_work_of_the_model_is_woken(workers: Workers, gateway: Gateway) -> None:
    await workers.add("fed", hungry=False)
    await workers.add("down", hungry=True, ready=False)
    await workers.add("hungry", hungry=True)
    wakes.notify({MODEL: 100, "another": 100})
    await workers.until_woken(1)
    wakes.notify({MODEL: 100})
    await workers.until_woken(2)
    assert workers.woken == {"hungry": 2}


async def test_no_more_are_woken_than_there_are_chunks_and_never_more_than_a_few(
    workers: Workers, gateway: Gateway
) -> None:
    await workers.add(*(f"engine-{n}" for n in range(12)), hungry=True)
    wakes.notify({MODEL: 2})
    await workers.until_woken(2)
    wakes.notify({MODEL: 1000})
    await workers.until_woken(2 + MOST_WOKEN)
    wakes.notify({MODEL: 1})
    await workers.until_woken(2 + MOST_WOKEN + 1)
    assert workers.woken.total() == 2 + MOST_WOKEN + 1


async def test_a_gateway_that_has_stopped_wakes_nobody_and_work_without_engines_is_no_error(
    workers: Workers, gateway: Gateway
) -> None:
    wakes.notify({MODEL: 1})
    await workers.add("hungry", hungry=True)
    await gateway.__aexit__()
    wakes.notify({MODEL: 1})
    await asyncio.sleep(0)
    assert not workers.woken
    await gateway.__aenter__()


async def test_work_calls_the_steward_once_a_second_at_most_also_work_that_waits_for_money(
    workers: Workers, gateway: Gateway, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, calls = [1000.0], list[float]()

    async def called(conn: Connection) -> None:
        calls.append(now[0])

    monkeypatch.setattr(wakes, "call_steward", called)
    monkeypatch.setattr("app.gateway.waker.clock.monotonic", lambda: now[0])
    for _ in range(30):
        wakes.notify({})
        now[0] += CALL_SECONDS / 10
        await asyncio.sleep(0)
    await eventually(lambda: len(calls) >= 3)
    assert len(calls) == 3
    assert CALL_SECONDS < CALM_SECONDS  # a call that is left out would find the steward awake


async def test_the_steward_wakes_workers_that_wait_although_work_is_ready_and_no_others(
    workers: Workers, database: Database, settings: Settings
) -> None:
    calls = WorkerCalls(database, settings)
    keeping = asyncio.create_task(calls.keep())
    await workers.add("hungry", hungry=True)
    await workers.add("fed", hungry=False)
    calls.note()
    async with database.transaction() as conn:
        tenant, pool = await make_tenant(conn), await ensure_pool(conn, MODEL)
    await submit(database, tenant, pool, 3)
    await asyncio.sleep(0)
    calls.note()
    await workers.until_woken(1)
    wakes.notify({})  # of this process
    await workers.until_woken(2)
    assert workers.woken == {"hungry": 2}
    keeping.cancel()
    await asyncio.wait([keeping])
