"""Claims about deleting an endpoint while events are written: real transactions on two connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest

from app.admission.admission import no_admission
from app.batches import lifecycle as batches
from app.batches import submit as intake
from app.db.pool import Connection, Database
from app.engines import catalogue
from app.events import KINDS
from app.queue import service as queue
from app.settings import Settings
from app.tenants.service import Tenant
from app.webhooks import endpoint_removal, endpoints
from app.webhooks.endpoints import Endpoint
from testing.waiting import in_time
from tests.queue import support
from tests.webhooks.support import ACCOUNT, emit, subscribe
from workers.gpu.open_chunk import OpenChunk
from workers.gpu.result_writer import ResultWriter

URL = "http://127.0.0.1:9/hook"


@asynccontextmanager
async def deleting(database: Database, endpoint: Endpoint) -> AsyncIterator[None]:
    """Delete the row, and commit at the end of the block."""
    async with database.transaction() as conn:
        await conn.execute("delete from endpoint where endpoint_id = %s", [endpoint.endpoint_id])
        yield


async def hearing(database: Database, settings: Settings, **options: object) -> tuple[Endpoint, int, int]:
    """An endpoint that subscribes to every kind, its tenant, and a pool."""
    async with database.durable() as conn:
        endpoint, _ = await subscribe(conn, settings, URL, kinds=list(KINDS), **options)
        return endpoint, endpoint.tenant_id, await support.make_pool(conn)


async def count(conn: Connection, table: str) -> int:
    row = await (await conn.execute(f"select count(*) from {table}".encode())).fetchone()
    assert row is not None
    return int(row[0])


async def test_a_submit_beside_the_removal_of_an_endpoint_neither_waits_nor_fails(
    database: Database, settings: Settings
) -> None:
    endpoint, tenant, _ = await hearing(database, settings)
    model = catalogue.load(settings.models_file).resolve("smollm2-135m-instruct")
    assert model is not None

    async def blocks() -> AsyncIterator[bytes]:
        yield orjson.dumps({"prompt": "x", "max_tokens": 10}) + b"\n"

    async with deleting(database, endpoint), in_time():
        await intake.submit_lines(
            database, settings, intake.Order(Tenant(tenant, ACCOUNT), model, admission=no_admission()), blocks()
        )
    async with database.relaxed() as conn:
        assert (await count(conn, "event"), await count(conn, "delivery")) == (1, 0)


async def test_a_settle_beside_the_removal_of_an_endpoint_neither_waits_nor_fails(
    database: Database, settings: Settings
) -> None:
    endpoint, tenant, pool = await hearing(database, settings)
    await support.submit(database, tenant, pool, 2)
    await support.drain(database, pool, await support.make_worker(database, pool))
    async with deleting(database, endpoint), in_time(), database.transaction() as conn:
        settled = await batches.settle(conn)
    assert [batch.ok for batch in settled] == [2]


async def test_a_flush_beside_the_removal_of_an_endpoint_neither_waits_nor_fails(
    database: Database, settings: Settings
) -> None:
    endpoint, tenant, pool = await hearing(database, settings)
    await support.submit(database, tenant, pool, 2)
    worker = await support.make_worker(database, pool)
    async with database.durable() as conn:
        await conn.execute("update batch set tells_items = true")
        lease = await support.claim(conn, pool, worker)
        assert lease is not None
        items = await queue.load(conn, lease)
    chunks = {lease.chunk_id: OpenChunk.of(lease, [], settings.item_attempts)}
    chunk = chunks[lease.chunk_id]
    chunk.has_events, chunk.results = True, support.answers(items)
    async with deleting(database, endpoint), in_time():
        storer = ResultWriter(settings, database, chunks)
        storer.hurry()
        running = asyncio.create_task(storer.run())
        while chunks and not running.done():
            await asyncio.sleep(0.01)
        running.cancel()
        assert not chunks
    async with database.relaxed() as conn:
        assert (await count(conn, "item_result"), await count(conn, "delivery")) == (2, 0)


async def test_an_endpoint_with_many_deliveries_is_deleted_in_bounded_steps_and_blocks_no_settle(
    database: Database, settings: Settings
) -> None:
    endpoint, tenant, pool = await hearing(database, settings)
    async with database.transaction() as conn:
        await conn.execute(
            "with e as (insert into event (tenant_id, kind, model, batch_id, run, data, n)"
            "  select %s, 'batch.queued', 'm', 1, 1, '{}', n from generate_series(1, 5000) n returning event_id)"
            " insert into delivery (event_id, endpoint_id) select event_id, %s from e",
            [tenant, endpoint.endpoint_id],
        )
        await conn.execute(
            "insert into attempt (delivery_id, n, started_at, duration_ms) select delivery_id, 1, now(), 1 from delivery"
        )
    await support.submit(database, tenant, pool, 2)
    await support.drain(database, pool, await support.make_worker(database, pool))
    async with database.durable() as conn, in_time():
        await endpoints.delete(conn, tenant, endpoint.endpoint_id)
        assert await count(conn, "delivery") == 5_000  # the call itself removes no deliveries
        async with database.transaction() as removing:
            assert await endpoint_removal.step(removing, limit=100) == 100
            async with database.transaction() as settling:
                assert len(await batches.settle(settling)) == 1
        assert await count(conn, "delivery") == 4_900
        steps = 0
        while moved := await endpoint_removal.step(conn, limit=1_000):
            assert moved <= 1_001
            steps += 1
        assert steps == 5
        assert [await count(conn, table) for table in ("delivery", "attempt", "endpoint")] == [0, 0, 0]


async def test_an_event_written_while_its_endpoint_was_closed_leaves_no_delivery_behind(
    database: Database, settings: Settings
) -> None:
    endpoint, tenant, _ = await hearing(database, settings)
    async with database.durable() as conn:
        async with database.transaction() as writing:
            await emit(writing, 1)
            await endpoints.delete(conn, tenant, endpoint.endpoint_id)
            assert await endpoint_removal.step(conn) == 0  # the transaction that writes the event locks the row
            assert await count(conn, "endpoint") == 1
        assert await endpoint_removal.step(conn) == 2
        assert [await count(conn, table) for table in ("delivery", "endpoint")] == [0, 0]


@pytest.mark.parametrize("kinds", [["batch.queued"]])
async def test_a_closed_endpoint_gets_no_events(database: Database, settings: Settings, kinds: list[str]) -> None:
    async with database.durable() as conn:
        endpoint, _ = await subscribe(conn, settings, URL, kinds=kinds)
        await endpoints.delete(conn, 1, endpoint.endpoint_id)
        await emit(conn, 1)
        assert await count(conn, "delivery") == 0
        assert (await endpoints.listing(conn, 1), await endpoints.newest(conn, 1)) == (([], 0), ([], False))
