"""Claims about duties that others keep from their work: they fail and say so, and have done the rest."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import psycopg
import pytest

from app.db.pool import Database
from app.duties.standing import Standing
from app.engines.service import ensure_pool
from app.queue import partitions_sql, retention, retention_sql
from app.settings import Settings
from app.storage.store import Store
from tests.maintenance.support import asked, make_due, read
from tests.queue import support
from tests.queue.past import Past, deliver
from workers.maintenance.worker import Worker

HELD_UP = "HeldUp: Locks of others kept this from being done: "


@pytest.fixture
async def past(database: Database, settings: Settings) -> AsyncIterator[Past]:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await ensure_pool(conn, "toy")
        yield Past(database, conn, tenant, pool, Store.of(settings))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No lock of these tests is released while it is waited for."""
    monkeypatch.setattr(retention, "_PATIENCE", "set lock_timeout = '20ms'")


@pytest.fixture
async def other(past: Past) -> AsyncIterator[psycopg.AsyncConnection]:
    """The connection of somebody else, in a transaction."""
    async with await psycopg.AsyncConnection.connect(past.database.url) as conn:
        await conn.execute("set idle_in_transaction_session_timeout = 0")
        yield conn


async def done(past: Past, settings: Settings, name: str) -> Standing:
    """How a duty stands after it was done."""
    await asked(past.database)
    await make_due(past.database)
    await asked(past.database)
    with Worker(settings) as worker:
        await asyncio.to_thread(worker.do, name)
    return (await read(past.database))[name]


async def test_a_day_that_is_being_read_is_a_failure_and_of_later_days_all_goes_that_can(
    past: Past, settings: Settings, other: psycopg.AsyncConnection
) -> None:
    first, second = await past.day(ago=41), await past.day(ago=40)
    for day in (first, second):
        await past.batch(day, final_ago=35)
    await deliver(past)
    await other.execute("select count(*) from item_result")
    for _ in range(2):  # the second run finds the first day half detached
        stands = await done(past, settings, "days")
        assert (stands.error, stands.succeeded_at) == (f"{HELD_UP}{first}, {second}.", None)
        assert await past.one("select count(*) from batch") == 0
        for day in (first, second):
            assert await past.tables(day) == {f"item_result_{day:%Y%m%d}"}
    await other.rollback()
    stands = await done(past, settings, "days")
    assert stands.error is None
    assert await past.tables(first) | await past.tables(second) == set()


async def test_a_locked_batch_keeps_its_own_day_only(
    past: Past, settings: Settings, other: psycopg.AsyncConnection
) -> None:
    first, second = await past.day(ago=41), await past.day(ago=40)
    held = await past.batch(first, final_ago=35)
    await past.batch(second, final_ago=35)
    await deliver(past)
    await other.execute("select from batch where request_id = %s for update", (held,))
    stands = await done(past, settings, "days")
    assert stands.error == f"{HELD_UP}{first}."
    assert (len(await past.tables(first)), await past.tables(second)) == (2, set())


async def test_retention_that_another_run_keeps_out_is_a_failure(
    past: Past, settings: Settings, other: psycopg.AsyncConnection
) -> None:
    await other.execute(retention_sql.TRY_LOCK)
    stands = await done(past, settings, "days")
    assert (stands.error, stands.succeeded_at) == (f"{HELD_UP}everything, since another run is active.", None)


async def test_engines_and_conversations_that_somebody_has_locked_are_a_failure(
    past: Past, settings: Settings, other: psycopg.AsyncConnection
) -> None:
    await past.conn.execute(
        "insert into engine (name, pool_id, url, mode, slots, state, heartbeat_at)"
        " select 'e' || n, %s, 'http://x', 'attached', 8, 'down', now() - interval '90 days' from generate_series(1, 3) n",
        (past.pool,),
    )
    ids = [uuid.uuid4() for _ in range(3)]
    await past.conn.execute(
        "insert into session (session_id, tenant_id, version, created_at, used_at)"
        " select i, %s, 1, now() - interval '90 days', now() - interval '90 days' from unnest(%s::uuid[]) i",
        (past.tenant, ids),
    )
    await other.execute("select from engine where name = 'e2' for update")
    await other.execute("select from session where session_id = %s for update", (ids[1],))
    assert (await done(past, settings, "engines")).error == f"{HELD_UP}1 engines."
    assert (await done(past, settings, "conversations")).error == f"{HELD_UP}1 conversations."
    assert await past.one("select array_agg(name) from engine") == ["e2"]
    assert await past.one("select array_agg(session_id) from session") == [ids[1]]
    await other.rollback()
    for name in ("engines", "conversations"):
        assert (await done(past, settings, name)).error is None


async def test_a_vacuum_that_the_server_skips_is_a_failure(
    past: Past, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = await past.day(ago=1)
    monkeypatch.setattr(partitions_sql, "FREEZE", "select 1 as {name}")  # as that of a table of another role
    stands = await done(past, settings, "freeze")
    assert stands.error is not None
    assert f"item_result_{day:%Y%m%d}" in stands.error
    assert stands.succeeded_at is None
