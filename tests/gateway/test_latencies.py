"""Claims about the latencies that the gateway measures: of streams only, and apart for those beside batch work."""

from datetime import timedelta

from app import clock
from app.db.pool import Database
from app.gateway.relay import Gateway, SyncCall
from app.metering import latency
from testing.fakes.engine import FakeEngine
from tests.gateway.support import Registry


async def test_streams_beside_batch_work_are_counted_apart_and_whole_answers_not_at_all(
    gateway: Gateway, registry: Registry, call: SyncCall, database: Database
) -> None:
    async with FakeEngine() as engine:
        await registry.ready(engine)
        await gateway.complete(call)
        assert [event async for event in gateway.stream(call)]
        await gateway.latencies.store()
    async with database.durable() as conn:
        found = await latency.read(conn, clock.now() - timedelta(minutes=2), 86_400)
    assert [(each.beside, each.requests, sum(each.first_token)) for each in found] == [(False, 1, 1)]
    assert sum(found[0].gap) == 2


async def test_an_engine_with_batch_requests_is_beside(
    gateway: Gateway, registry: Registry, call: SyncCall, database: Database
) -> None:
    async with FakeEngine() as engine:
        await registry.ready(engine)
        async with database.durable() as conn:
            await conn.execute("update engine set batch_in_flight = 3")
        assert [event async for event in gateway.stream(call)]
        await gateway.latencies.store()
    async with database.durable() as conn:
        found = await latency.read(conn, clock.now() - timedelta(minutes=2), 86_400)
    assert [each.beside for each in found] == [True]
