"""Claims about sessions: the last ten prompts of each are kept, and the report says how they grow."""

from datetime import timedelta

import pytest

from app import clock
from app.db.pool import Database
from app.metering import lines, session_report, sessions
from app.metering.lines import parts_of
from app.metering.reports import Scope
from app.metering.session_report import Session, SessionRow
from app.metering.spend_labels import SpendLabels
from app.metering.sync_usage import SyncUsage
from app.usage_counts import UsageCounts
from tests.queue import support

SECRET = b"secret"


@pytest.fixture
async def tenant(database: Database) -> int:
    async with database.durable() as conn:
        return await support.make_tenant(conn)


def turn(usage: SyncUsage, tenant: int, session: str, prompt: int, cached: int = 0, workflow: str = "w") -> None:
    line = parts_of(tenant, "key", SpendLabels(workflow), "toy", lines.SYNC, None)
    usage.add(line, UsageCounts(1, 1, prompt, cached, 5))
    usage.add_turn(line, sessions.hashed(SECRET, tenant, session), prompt, prompt - cached)


async def read(database: Database, *by: str) -> list[Session]:
    async with database.relaxed() as conn:
        now = clock.now()
        return await session_report.read(conn, by, Scope(now - timedelta(days=1), now + timedelta(minutes=1)))


async def test_a_session_that_grows_by_a_hundred_tokens_a_request_is_reported_with_that_slope(
    database: Database, tenant: int
) -> None:
    usage = SyncUsage(database)
    for n in range(4):
        turn(usage, tenant, "grows", 1000 + 100 * n, cached=500)
        turn(usage, tenant, "stays", 300)
        await usage.book()
    turn(usage, tenant, "once", 10)
    await usage.book()
    found = await read(database, "workflow", "model")
    assert [(each.turns, each.prompt, each.slope) for each in found] == [(4, 1300, 100), (4, 300, 0), (1, 10, None)]
    assert found[0].cached_share == pytest.approx(2000 / 4600)
    assert session_report.grouped(found) == [
        SessionRow(("w", "toy"), 3, 4, 300, 50, 100, pytest.approx(2000 / 4600 / 3)),
    ]


async def test_the_last_ten_prompts_are_kept_however_they_were_booked(database: Database, tenant: int) -> None:
    usage = SyncUsage(database)
    for n in range(25):
        turn(usage, tenant, "s", n, workflow="old" if n < 20 else "new")
        if n % 7 == 0:
            await usage.book()
    await usage.book()
    async with database.relaxed() as conn:
        row = await (await conn.execute("select turns, prompts, fresh, workflow from session_growth")).fetchone()
    assert row == (25, list(range(15, 25)), list(range(15, 25)), "new")


async def test_a_session_without_a_request_for_a_week_is_forgotten(database: Database, tenant: int) -> None:
    usage = SyncUsage(database)
    for name in ("old", "new"):
        turn(usage, tenant, name, 10)
    await usage.book()
    old = sessions.hashed(SECRET, tenant, "old")
    async with database.durable() as conn:
        await conn.execute("update session_growth set seen_at = now() - interval '8 days' where session = %s", (old,))
        await sessions.forget_old(conn)
    assert [each.session for each in await read(database, "workflow")] == [sessions.hashed(SECRET, tenant, "new").hex()]


def test_a_session_cannot_be_recognised_in_another_account_or_without_the_key() -> None:
    assert len({sessions.hashed(*whose, "s") for whose in ((SECRET, 1), (SECRET, 2), (b"other", 1))}) == 3
