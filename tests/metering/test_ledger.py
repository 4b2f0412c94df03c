"""Claims about the ledger: it has what the queue counted, by hour and line, whatever happens in between."""

from dataclasses import replace
from decimal import Decimal

import pytest

from app import clock
from app.batches import lifecycle
from app.db.pool import Database
from app.engines.catalogue import Price
from app.metering import ledger, lines, reports
from app.metering.lines import LineParts, Lines, parts_of
from app.metering.reports import Scope
from app.metering.spend_labels import SpendLabels
from app.queue import chunk_sweeps, service
from app.queue.types import ChunkTimes
from app.states import BatchState
from app.usage_counts import UsageCounts
from tests.queue import support

PRICE = Price(Decimal("0.5"), Decimal("0.125"), Decimal(2))


async def settle(database: Database) -> None:
    async with database.transaction() as conn:
        await lifecycle.settle(conn)


async def differences(database: Database) -> list[reports.Difference]:
    async with database.relaxed() as conn:
        return await reports.check(conn)


async def report(database: Database, *by: str) -> list[reports.UsageRow]:
    async with database.relaxed() as conn:
        hour = clock.now().replace(minute=0, second=0, microsecond=0)
        return await reports.usage(conn, by, Scope(hour, clock.now()))


def line(tenant: int, workflow: str = "w", model: str = "toy", price: Price | None = PRICE) -> LineParts:
    return parts_of(tenant, "key", SpendLabels(workflow), model, "batch", price)


@pytest.fixture
async def world(database: Database) -> tuple[int, int, int]:
    """Tenant, pool and worker."""
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    return tenant, pool, await support.make_worker(database, pool)


async def submitted(database: Database, tenant: int, pool: int, items: int, line_id: int | None) -> int:
    async with database.transaction() as conn:
        batch = replace(await support.new_batch(conn, tenant, pool, items), line_id=line_id)
        await support.put(conn, batch, [100] * items)
    return batch.batch_id


async def test_usage_is_the_sum_of_the_results_and_its_cost_is_exact(
    database: Database, world: tuple[int, int, int]
) -> None:
    tenant, pool, worker = world
    [line_id] = await Lines().ids(database, [line(tenant)])
    await submitted(database, tenant, pool, 40, line_id)
    await support.drain(database, pool, worker)
    await settle(database)
    [row] = await report(database, "workflow", "model", "key")
    assert row.group == ("w", "toy", "key")
    assert row.counts == UsageCounts(40, 40, 120, 40, 200)
    # per item 2 fresh, 1 cached and 5 answer tokens
    assert row.cost == Decimal(40) * (2 * Decimal("0.5") + Decimal("0.125") + 5 * 2) / 1_000_000
    assert await differences(database) == []


async def test_work_queued_before_there_were_lines_is_booked_without_labels_or_price(
    database: Database, world: tuple[int, int, int]
) -> None:
    tenant, pool, worker = world
    await submitted(database, tenant, pool, 5, None)
    await support.drain(database, pool, worker)
    await settle(database)
    [row] = await report(database, "workflow", "kind")
    assert (row.group, row.counts.requests, row.cost) == (("default", "batch"), 5, None)
    assert await differences(database) == []


async def test_a_result_that_no_engine_was_asked_for_is_booked_nowhere(
    database: Database, world: tuple[int, int, int]
) -> None:
    tenant, pool, worker = world
    [line_id] = await Lines().ids(database, [line(tenant)])
    await submitted(database, tenant, pool, 4, line_id)
    async with database.durable() as conn:
        lease = await support.claim(conn, pool, worker)
        assert lease is not None
        items = await service.load(conn, lease)
        unfit = [result._replace(attempt=0) for result in support.answers(items[:2], ok=False)]
        assert await service.flush(conn, lease, unfit + support.answers(items[2:]))
        assert await service.finish(conn, lease, times=ChunkTimes(unrun=2)) is not None
    await settle(database)
    [row] = await report(database, "workflow")
    assert (row.counts.requests, row.counts.ok) == (2, 2)
    assert await differences(database) == []


async def test_results_stored_by_a_lost_worker_are_booked_when_the_batch_is_cancelled(
    database: Database, world: tuple[int, int, int]
) -> None:
    tenant, pool, worker = world
    [line_id] = await Lines().ids(database, [line(tenant)])
    batch_id = await submitted(database, tenant, pool, 10, line_id)
    async with database.durable() as conn:
        lease = await support.claim(conn, pool, worker)
        assert lease is not None
        items = await service.load(conn, lease)
        await service.flush(conn, lease, support.answers(items[:3]) + support.answers(items[3:4], ok=False))
        await conn.execute(
            "update chunk set state = 'ready', worker_id = null, token = token + 1 where batch_id = %s", (batch_id,)
        )
        await conn.execute("update sched set ready = ready + 1, inflight_tokens = 0 where tenant_id = %s", (tenant,))
        await conn.execute("update batch set state = %s where batch_id = %s", (BatchState.CANCELLING, batch_id))
    async with database.relaxed() as conn:
        await chunk_sweeps.sweep(conn)
    await settle(database)
    [row] = await report(database, "workflow")
    assert (row.group, row.counts.requests, row.counts.ok) == (("w",), 4, 3)
    assert await differences(database) == []


async def test_a_difference_between_ledger_and_queue_is_found(database: Database, world: tuple[int, int, int]) -> None:
    tenant, pool, worker = world
    [line_id] = await Lines().ids(database, [line(tenant)])
    await submitted(database, tenant, pool, 4, line_id)
    await support.drain(database, pool, worker)
    await settle(database)
    async with database.durable() as conn:
        await conn.execute("update usage set output = output + 7")
    assert await differences(database) == [reports.Difference("acme", "output tokens", 27, 20)]


async def test_equal_lines_have_one_id_in_every_process_and_a_new_price_makes_a_new_line(
    database: Database, world: tuple[int, int, int]
) -> None:
    tenant, *_ = world
    wanted = [line(tenant), line(tenant, "v"), line(tenant, price=None), line(tenant)]
    first, second = await Lines().ids(database, wanted), await Lines().ids(database, wanted)
    assert first == second
    assert len(set(first)) == 3


async def test_labels_beyond_the_accounts_limits_are_called_other(
    database: Database, world: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant, *_ = world
    monkeypatch.setattr(lines, "MOST_WORKFLOWS", 3)
    ids = await Lines().ids(database, [line(tenant, f"w{n}") for n in range(6)])
    assert len(set(ids)) == 4
    async with database.relaxed() as conn:
        names = await (await conn.execute("select workflow from line order by 1")).fetchall()
    assert [name for (name,) in names] == ["other", "w0", "w1", "w2"]
    again = await Lines().ids(database, [line(tenant, "w1")])
    assert again == ids[1:2]


async def test_a_deleted_accounts_usage_goes_with_it(database: Database, world: tuple[int, int, int]) -> None:
    tenant, pool, worker = world
    [line_id] = await Lines().ids(database, [line(tenant)])
    await submitted(database, tenant, pool, 4, line_id)
    await support.drain(database, pool, worker)
    await settle(database)
    async with database.transaction() as conn:
        await ledger.forget(conn, tenant)
        row = await (await conn.execute("select (select count(*) from usage), (select count(*) from line)")).fetchone()
    assert row == (0, 0)
