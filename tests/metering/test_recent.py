"""Claims about the ledger's gauges for `/metrics`: what they say, and that their labels stay few."""

from collections import defaultdict

import pytest

from app.db.pool import Connection, Database
from app.metering import lines, recent, recent_sql, sessions
from app.metering.lines import OTHER, LineParts, parts_of
from app.metering.spend_labels import SpendLabels
from app.metering.sync_usage import SyncUsage
from app.usage_counts import UsageCounts
from tests.queue import support


@pytest.fixture
async def tenant(database: Database) -> int:
    async with database.durable() as conn:
        return await support.make_tenant(conn)


def line(tenant: int, workflow: str = "w", kind: str = lines.SYNC, family: str = "-") -> LineParts:
    return parts_of(tenant, "key", SpendLabels(workflow, family=family), "toy", kind, None)


async def read(conn: Connection) -> dict[str, dict[tuple[str, ...], float]]:
    found: defaultdict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for name, labels, value in await recent.gauges(conn):
        assert labels not in found[name]
        found[name][labels] = value
    return found


async def booked(database: Database, usage: SyncUsage) -> dict[str, dict[tuple[str, ...], float]]:
    await usage.book()
    async with database.relaxed() as conn:
        return await read(conn)


async def test_first_tokens_are_quantiles_by_workflow_and_class_from_the_sketches(
    database: Database, tenant: int
) -> None:
    usage = SyncUsage(database)
    for ms in (100, 100, 100, 900):
        usage.add(line(tenant, "chat"), UsageCounts(1, 1), first_token_ms=ms)
    usage.add(line(tenant, "chat", "batch"), UsageCounts(1, 1), first_token_ms=5000)
    usage.add(line(tenant, "quiet"), UsageCounts(1, 1))  # nothing was measured
    found = (await booked(database, usage))["workflow_ttft_seconds"]
    assert found == {
        ("chat", "sync", "0.5"): pytest.approx(0.1, rel=0.06),
        ("chat", "sync", "0.95"): pytest.approx(0.9, rel=0.06),
        ("chat", "batch", "0.5"): pytest.approx(5, rel=0.06),
        ("chat", "batch", "0.95"): pytest.approx(5, rel=0.06),
    }


async def test_cached_and_retried_requests_are_shares(database: Database, tenant: int) -> None:
    usage = SyncUsage(database)
    usage.add(line(tenant, family="aa"), UsageCounts(1, 1, prompt=100, cached=75))
    usage.add(line(tenant, family="bb"), UsageCounts(1, 1, prompt=50))
    usage.add(line(tenant, "w", "batch"), UsageCounts(10, 9, retried=4, retried_ok=3))
    found = await booked(database, usage)
    assert found["family_cached_ratio"] == {("aa",): 0.75, ("bb",): 0}
    assert found["retry_success_ratio"] == {("w",): 0.75}


async def test_sessions_are_counted_and_their_growth_is_a_distribution(database: Database, tenant: int) -> None:
    usage = SyncUsage(database)
    for session in range(10):
        for turn in range(3):
            usage.add(line(tenant), UsageCounts(1, 1))
            usage.add_turn(line(tenant), sessions.hashed(b"s", tenant, str(session)), 100 + session * turn, 0)
    usage.add_turn(line(tenant), sessions.hashed(b"s", tenant, "once"), 100, 0)  # too short for a slope
    found = await booked(database, usage)
    assert found["recent_sessions"] == {("w",): 11}
    assert found["session_growth_tokens"] == {("w", "0.5"): 4, ("w", "0.95"): 9}


async def test_hours_before_the_last_one_do_not_count(database: Database, tenant: int) -> None:
    usage = SyncUsage(database)
    usage.add(line(tenant, family="aa"), UsageCounts(1, 1, prompt=100, retried=1), first_token_ms=10)
    await usage.book()
    async with database.durable() as conn:
        await conn.execute("update usage set hour = hour - interval '2 h'")
        assert await read(conn) == {}


async def test_a_reading_does_not_grow_with_the_hours_that_are_kept(database: Database, tenant: int) -> None:
    usage = SyncUsage(database)
    for n in range(40):
        usage.add(line(tenant, f"w{n}"), UsageCounts(1, 1, prompt=9), first_token_ms=10)
    await usage.book()

    async def pages(conn: Connection) -> int:
        row = await (
            await conn.execute(f"explain (analyze, buffers, format json) {recent_sql.FIRST_TOKENS}".encode())
        ).fetchone()
        assert row
        plan = row[0][0]["Plan"]
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    async def add(conn: Connection, begin: int, end: int) -> None:
        await conn.execute(
            "insert into usage (hour, line_id, requests, first_token)"
            " select u.hour - n * interval '1 h', line_id, 1, first_token from usage u, generate_series(%s::int, %s) n"
            " where u.hour >= now() - interval '1 h'",
            (begin, end),
        )
        await conn.execute("vacuum analyze usage")

    async with database.durable() as conn:
        await add(conn, 2, 100)
        few = await pages(conn)
        await add(conn, 101, 900)
        many = await pages(conn)
    assert many < 2 * few, (few, many)


async def test_the_labels_are_bounded_and_the_rest_is_one_row(database: Database) -> None:
    usage, accounts = SyncUsage(database), 3
    async with database.durable() as conn:
        tenants = [await support.make_tenant(conn, f"a{n}") for n in range(accounts)]
    for tenant in tenants:
        for n in range(40):  # of each account; it may have 50
            each = line(tenant, f"{tenant}-{n}", family=f"{tenant}-{n}")
            usage.add(each, UsageCounts(n + 1, 1, prompt=n + 1, retried=1), first_token_ms=10)
            usage.add_turn(each, sessions.hashed(b"s", tenant, str(n)), 100, 0)
    found = await booked(database, usage)
    workflows = {workflow for workflow, *_ in found["workflow_ttft_seconds"]}
    assert len(workflows) == recent_sql.MOST_WORKFLOWS + 1
    assert OTHER in workflows
    assert f"{tenants[0]}-39" in workflows  # the largest are shown
    assert len(found["retry_success_ratio"]) == recent_sql.MOST_WORKFLOWS + 1
    assert len(found["family_cached_ratio"]) == recent_sql.MOST_FAMILIES + 1
    assert len(found["recent_sessions"]) == recent_sql.MOST_WORKFLOWS + 1
    assert sum(found["recent_sessions"].values()) == accounts * 40
