"""Claims about latencies and engine time in the ledger, and about old hours: reports read the same before and after."""

from datetime import UTC, datetime, timedelta

import pytest

from app import clock
from app.batches import lifecycle
from app.db.pool import Database
from app.metering import ledger, reports, sketch
from app.metering.ledger import DAYS_KEPT_DAYS, HOURS_KEPT_DAYS, Booking
from app.metering.lines import SYNC, Lines, parts_of
from app.metering.reports import LatencyRow, Scope, UsageRow
from app.metering.spend_labels import SpendLabels
from app.metering.sync_usage import SyncUsage
from app.queue import service
from app.queue.types import ChunkTimes
from app.usage_counts import UsageCounts
from tests.queue import support

EVER = Scope(datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))
TODAY = clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
OLD = TODAY - timedelta(days=HOURS_KEPT_DAYS + 1)


@pytest.fixture
async def tenant(database: Database) -> int:
    async with database.durable() as conn:
        return await support.make_tenant(conn)


async def latencies(database: Database, *by: str) -> list[LatencyRow]:
    async with database.relaxed() as conn:
        return await reports.latencies(conn, by, EVER)


async def usage(database: Database, *by: str) -> list[UsageRow]:
    async with database.relaxed() as conn:
        return await reports.usage(conn, by, EVER)


async def book(database: Database, tenant: int, kind: str, *bookings: tuple[datetime, UsageCounts, bytes]) -> None:
    [line_id] = await Lines().ids(database, [parts_of(tenant, "key", SpendLabels("w"), "toy", kind, None)])
    async with database.transaction() as conn:
        await ledger.book(conn, [Booking(hour, line_id, counts, times, times) for hour, counts, times in bookings])


async def kept(database: Database) -> int:
    """Let the steward add up old days. Returns how many there were."""
    days = 0
    while True:
        async with database.transaction() as conn:
            if not await ledger.keep(conn, clock.now()):
                return days
        days += 1


async def test_what_the_worker_measured_of_a_chunk_is_booked_with_its_results(database: Database, tenant: int) -> None:
    async with database.durable() as conn:
        pool = await support.make_pool(conn)
    worker = await support.make_worker(database, pool)
    await support.submit(database, tenant, pool, 8, max_items=4)
    for times in (ChunkTimes(1500, bytes([40, 40]), bytes([60, 60, 61, 127])), ChunkTimes(500, b"", bytes([60] * 4))):
        async with database.durable() as conn:
            lease = await support.claim(conn, pool, worker)
            assert lease is not None
            assert await service.flush(conn, lease, support.answers(await service.load(conn, lease)))
            assert await service.finish(conn, lease, times=times)
        async with database.transaction() as conn:
            await lifecycle.settle(conn)
    [row] = await latencies(database, "kind")
    assert (row.group, sum(row.first_token), row.first_token[40]) == (("batch",), 2, 2)
    assert (sum(row.duration), row.duration[60], row.duration[61], row.duration[127]) == (8, 6, 1, 1)
    [used] = await usage(database, "kind")
    assert (used.counts.requests, used.counts.engine_ms) == (8, 2000)


async def test_engine_time_of_items_that_went_back_is_booked_although_nothing_has_a_result(
    database: Database, tenant: int
) -> None:
    async with database.durable() as conn:
        pool = await support.make_pool(conn)
    worker = await support.make_worker(database, pool)
    await support.submit(database, tenant, pool, 4)
    async with database.durable() as conn:
        lease = await support.claim(conn, pool, worker)
        assert lease is not None
        assert await service.finish(conn, lease, times=ChunkTimes(700))
    async with database.transaction() as conn:
        await lifecycle.settle(conn)
    [row] = await usage(database)
    assert (row.counts.requests, row.counts.engine_ms) == (0, 700)
    async with database.relaxed() as conn:
        assert await reports.check(conn) == []


async def test_the_times_of_synchronous_answers_are_added_up_over_bookings(database: Database, tenant: int) -> None:
    line = parts_of(tenant, "key", SpendLabels("w"), "toy", SYNC, None)
    usage = SyncUsage(database)
    for ms in (100, 100, 900):
        usage.add(line, UsageCounts(1, 1, 3, 0, 5), first_token_ms=ms / 10, duration_ms=ms)
        usage.add(line, UsageCounts(1, 1, 3, 0, 5))
        await usage.book()
    [row] = await latencies(database, "workflow")
    assert sketch.quantile(row.first_token, 0.5) == pytest.approx(10, rel=0.05)
    assert sketch.quantile(row.duration, 1) == pytest.approx(900, rel=0.05)
    assert sum(row.duration) == 3


async def test_old_hours_become_days_and_reports_read_the_same(database: Database, tenant: int) -> None:
    bookings = [
        (OLD + timedelta(hours=n % 30), UsageCounts(2, 1, 10, 4, 5, engine_ms=9), bytes([n, 99]) if n else b"")
        for n in range(30)
    ]
    await book(database, tenant, SYNC, *bookings, (TODAY, UsageCounts(1, 1, 1, 0, 1), b""))
    before = await usage(database, "workflow", "day"), await latencies(database, "workflow", "day")
    assert await kept(database) == 1  # the day after is not old enough
    async with database.relaxed() as conn:
        rows = await (await conn.execute("select hour, requests from usage_day")).fetchall()
    assert rows == [(OLD, 48)]
    assert (await usage(database, "workflow", "day"), await latencies(database, "workflow", "day")) == before
    assert len(await usage(database, "hour")) == 1 + 6 + 1


async def test_what_is_booked_late_for_an_old_day_is_added_to_it(database: Database, tenant: int) -> None:
    for _ in range(2):
        await book(database, tenant, SYNC, (OLD, UsageCounts(1, 1, 10, 4, 5), bytes([7])))
        assert await kept(database) == 1
    [row] = await usage(database, "day")
    assert (row.counts.requests, row.counts.prompt) == (2, 20)
    [times] = await latencies(database)
    assert times.duration[7] == 2


async def test_after_thirteen_months_usage_is_dropped_and_the_ledger_still_agrees_with_the_queue(
    database: Database, tenant: int
) -> None:
    ancient = TODAY - timedelta(days=DAYS_KEPT_DAYS + 1)
    for kind in ("batch", SYNC, "door"):
        await book(database, tenant, kind, (ancient, UsageCounts(3, 2, 10, 4, 5), b""))
    async with database.durable() as conn:
        values = "values (%s, 2, 1, 10, 4, 5)"
        await conn.execute(
            f"insert into removed_counts (tenant_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens) {values}",
            (tenant,),
        )
        assert await reports.check(conn) == []
    await kept(database)
    assert await usage(database) == []
    async with database.relaxed() as conn:
        assert await reports.check(conn) == []
    async with database.transaction() as conn:
        await ledger.forget(conn, tenant)
        left = await (await conn.execute("select count(*) from dropped_usage")).fetchone()
    assert left == (0,)
