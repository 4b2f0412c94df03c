"""A request waits for an engine only if one is expected in time. Otherwise it is refused with Retry-After."""

import asyncio

import pytest

from app.db.pool import Database
from app.errors import NoCapacity
from app.gateway import relay
from app.gateway.relay import Gateway, SyncCall
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually, in_time
from tests.clock import Clock
from tests.gateway.support import Registry
from tests.queue import support


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.gateway.engine_directory.GRACE_SECONDS", 0.05)
    # A read that takes long is no outage here, and is waited for.
    monkeypatch.setattr("app.gateway.engine_directory.BLIND_SECONDS", 3600.0)
    monkeypatch.setattr("app.db.stale_if_error.PATIENCE_SECONDS", 3600.0)


async def away(database: Database, ids: tuple[int, int], expected: float | None) -> None:
    async with database.durable() as conn:
        said = {"ready": False, "reason": "engine_down", "allowance": 0, "expected_seconds": expected}
        await support.report_engine(conn, *ids, **said)  # type: ignore[arg-type]


async def back(database: Database, ids: tuple[int, int]) -> None:
    async with database.durable() as conn:
        await support.report_engine(conn, *ids, ready=True, reason=None, allowance=0)


async def refused(gateway: Gateway, call: SyncCall) -> NoCapacity:
    async with in_time():
        with pytest.raises(NoCapacity) as error:
            await gateway.complete(call)
    assert error.value.status == 503
    return error.value


async def test_an_engine_that_is_expected_too_late_is_not_waited_for(
    gateway: Gateway, registry: Registry, database: Database, call: SyncCall
) -> None:
    async with FakeEngine() as engine:
        await away(database, await registry.ready(engine), 3600)
        error = await refused(gateway, call)
        assert 3000 <= error.retry_after <= 3600
        assert "one is expected in about " in error.message


async def test_an_engine_of_which_nobody_knows_when_it_comes_back_is_not_waited_for(
    gateway: Gateway, registry: Registry, database: Database, call: SyncCall
) -> None:
    async with FakeEngine() as engine:
        await away(database, await registry.ready(engine), None)
        assert (await refused(gateway, call)).retry_after == relay.RETRY_SECONDS


async def test_an_engine_that_is_expected_in_time_is_waited_for(
    gateway: Gateway, registry: Registry, database: Database, call: SyncCall, clock: Clock
) -> None:
    async with FakeEngine() as engine:
        ids = await registry.ready(engine)
        await away(database, ids, 10)
        waiting = asyncio.create_task(gateway.complete(call))
        await clock.sleep(0.3)  # several times the grace
        assert not waiting.done()
        await back(database, ids)
        assert b"echo: hello" in await waiting


async def test_those_who_wait_in_line_are_told_as_soon_as_their_engine_is_gone_for_long(
    gateway: Gateway, registry: Registry, database: Database, call: SyncCall
) -> None:
    async with FakeEngine(latency=3600) as engine:
        ids = await registry.ready(engine, slots=1)
        first = asyncio.create_task(gateway.complete(call))
        await eventually(lambda: engine.running)
        waiting = [asyncio.create_task(refused(gateway, call)) for _ in range(3)]
        await away(database, ids, 3600)
        errors = await asyncio.gather(*waiting)
        assert all(3000 <= error.retry_after <= 3600 for error in errors)
        first.cancel()


async def test_a_grace_begins_anew_with_every_absence(
    gateway: Gateway,
    registry: Registry,
    database: Database,
    call: SyncCall,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with FakeEngine() as engine:
        ids = await registry.ready(engine)
        await away(database, ids, None)
        await refused(gateway, call)
        await back(database, ids)
        clock.advance(0.6)  # as long as the gateway believes what it read
        await gateway.complete(call)
        monkeypatch.setattr("app.gateway.engine_directory.GRACE_SECONDS", 5.0)
        await away(database, ids, None)
        clock.advance(0.6)
        waiting = asyncio.create_task(gateway.complete(call))
        await clock.sleep(0.5)
        assert not waiting.done()
        await back(database, ids)
        assert b"echo: hello" in await waiting
