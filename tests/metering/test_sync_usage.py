"""Claims about the usage of synchronous requests: each is booked once, whatever becomes of a commit."""

from dataclasses import replace

import psycopg
import pytest

from app.db.pool import Connection, Database
from app.metering import ledger, lines
from app.metering import sync_usage as module
from app.metering.lines import parts_of
from app.metering.spend_labels import SpendLabels
from app.metering.sync_usage import SyncUsage
from app.usage_counts import UsageCounts
from tests.queue import support

USED = UsageCounts(1, 1, prompt=10, cached=4, output=5)


@pytest.fixture
async def tenant(database: Database) -> int:
    async with database.durable() as conn:
        return await support.make_tenant(conn)


def line(tenant: int, workflow: str = "w") -> lines.LineParts:
    return parts_of(tenant, "key", SpendLabels(workflow), "toy", lines.SYNC, None)


async def booked(database: Database) -> list[tuple[object, ...]]:
    async with database.relaxed() as conn:
        rows = await conn.execute(
            "select workflow, sum(requests)::int, sum(ok)::int, sum(prompt)::int, sum(cached)::int, sum(output)::int"
            " from usage join line using (line_id) group by 1 order by 1"
        )
        return await rows.fetchall()


async def test_requests_are_added_up_by_line_and_booked_together(database: Database, tenant: int) -> None:
    usage = SyncUsage(database)
    for n in range(10):
        usage.add(line(tenant, "a" if n < 7 else "b"), replace(USED, ok=int(n != 0)))
    await usage.book()
    await usage.book()
    assert await booked(database) == [("a", 7, 6, 70, 28, 35), ("b", 3, 3, 30, 12, 15)]


async def test_what_is_left_is_booked_when_the_process_ends(database: Database, tenant: int) -> None:
    usage = SyncUsage(database)
    async with usage.keeping():
        usage.add(line(tenant), USED)
    assert await booked(database) == [("w", 1, 1, 10, 4, 5)]


async def test_a_group_that_failed_is_booked_later_and_one_whose_answer_was_lost_is_not_booked_again(
    database: Database, tenant: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage, real = SyncUsage(database), ledger.book

    async def fails(conn: Connection, bookings: object) -> None:
        raise psycopg.OperationalError("away")

    usage.add(line(tenant), USED)
    with monkeypatch.context() as patched:
        patched.setattr(module.ledger, "book", fails)
        with pytest.raises(psycopg.OperationalError):
            await usage.book()
    assert await booked(database) == []

    usage.add(line(tenant), USED)  # belongs to the next group
    number = usage._number
    group = usage._group
    await usage.book()
    usage._number, usage._group = number, group
    await usage.book()
    assert await booked(database) == [("w", 1, 1, 10, 4, 5)]
    await usage.book()
    assert await booked(database) == [("w", 2, 2, 20, 8, 10)]
    assert real is module.ledger.book


async def test_the_usage_of_a_deleted_account_does_not_hold_up_that_of_others(database: Database, tenant: int) -> None:
    async with database.durable() as conn:
        doomed = await support.make_tenant(conn, "doomed")
    usage = SyncUsage(database)
    usage.add(line(doomed), USED)
    await usage.book()
    async with database.transaction() as conn:
        await ledger.forget(conn, doomed)
        await conn.execute("delete from tenant where tenant_id = %s", (doomed,))
    for account in (doomed, tenant):
        usage.add(line(account, "later"), USED)
        usage.add(line(account), USED)
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        await usage.book()
    await usage.book()
    assert [(row[0], row[1]) for row in await booked(database)] == [("later", 1), ("w", 1)]


async def test_more_labels_than_memory_allows_are_not_told_apart(
    database: Database, tenant: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_SUMS", 2)
    usage = SyncUsage(database)
    for n in range(5):
        usage.add(line(tenant, f"w{n}"), USED)
    await usage.book()
    assert [(row[0], row[1]) for row in await booked(database)] == [("other", 3), ("w0", 1), ("w1", 1)]
