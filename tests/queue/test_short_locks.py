"""Claims about processes that stop in the middle of a transaction: claims of other accounts, and the steward, go on."""

import asyncio
from collections.abc import Awaitable, Callable

import psycopg
import pytest

from app.budgets import sql as budgets_sql
from app.db.pool import Connection, Database
from app.queue import chunk_sweeps, fair_order_sql, order_deltas, order_drift, ready_counts, reaping, submit_sql
from app.settings import Settings
from tests.maintenance.support import work
from tests.queue import support
from workers.maintenance import duties
from workers.maintenance.work import HeldUp

FREE = "select tenant_id from sched order by tenant_id for update nowait"


async def test_a_submit_has_locked_no_account_before_its_commit(database: Database) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    await support.submit(database, tenant, pool, 8)
    async with database.transaction() as conn:
        await support.put(conn, await support.new_batch(conn, tenant, pool, 8), [100] * 8)
        async with database.durable() as other:
            assert await (await other.execute(FREE)).fetchall() == [(tenant,)]
    async with database.relaxed() as conn:
        assert await (await conn.execute("select ready from sched")).fetchall() == [(2,)]


async def test_of_a_transaction_that_fails_or_is_rolled_back_no_account_gets_work(database: Database) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    with pytest.raises(psycopg.errors.DivisionByZero):
        async with database.transaction() as conn:
            ready_counts.of(conn).add(pool, tenant, 5)
            await conn.execute("select 1 / 0")
    with pytest.raises(psycopg.errors.NumericValueOutOfRange):
        async with database.transaction() as conn:
            ready_counts.of(conn).add(pool, tenant, 2**31)
    async with database.relaxed() as conn:
        assert await (await conn.execute("select count(*) from sched")).fetchone() == (0,)
        with pytest.raises(RuntimeError):
            ready_counts.of(conn)
    await support.submit(database, tenant, pool, 8)  # the connection is in order


async def test_claims_go_on_with_other_accounts_while_one_is_locked(database: Database) -> None:
    async with database.durable() as conn:
        first, second = await support.make_tenant(conn, "a"), await support.make_tenant(conn, "b")
        pool = await support.make_pool(conn)
    for tenant in (first, second):
        await support.submit(database, tenant, pool, 64)
    worker = await support.make_worker(database, pool)
    async with await psycopg.AsyncConnection.connect(database.url) as frozen, database.relaxed() as conn:
        await frozen.execute("update sched set ready = ready where tenant_id = %s", (first,))
        claimed = [await support.claim(conn, pool, worker) for _ in range(3)]
        assert [lease and lease.tenant_id for lease in claimed] == [second] * 3
        await frozen.rollback()
        lease = await support.claim(conn, pool, worker)
        assert lease is not None
        assert lease.tenant_id == first


async def test_the_fold_leaves_a_locked_account_for_later(database: Database) -> None:
    async with database.durable() as conn:
        first, second = await support.make_tenant(conn, "a"), await support.make_tenant(conn, "b")
        pool = await support.make_pool(conn)
    for tenant in (first, second):
        await support.submit(database, tenant, pool, 4)
    await support.drain(database, pool, await support.make_worker(database, pool))
    async with await psycopg.AsyncConnection.connect(database.url) as frozen, database.relaxed() as conn:
        await frozen.execute("select from sched where tenant_id = %s for update", (first,))
        assert await order_deltas.fold(conn) == 1
        await frozen.rollback()
        assert await order_deltas.fold(conn) == 1
        assert await order_deltas.fold(conn) == 0
        assert await (await conn.execute("select sum(inflight_tokens) from sched")).fetchone() == (0,)


@pytest.mark.parametrize(
    "statement",
    [submit_sql.COUNT_READY, fair_order_sql.FOLD_DELTAS, budgets_sql.TURN, budgets_sql.RETURN_DEAD],
)
async def test_a_lock_that_is_held_over_a_round_trip_fails_the_tests(database: Database, statement: str) -> None:
    values = {"pools": [], "tenants": [], "ready": [], "deadlines": [], "chunks": []}
    values |= dict.fromkeys(("budget_id", "before", "window_from", "window_to", "tenant_id", "name", "seconds"))
    async with database.relaxed() as conn:
        await conn.execute(statement, values if "%" in statement else None)
        async with conn.transaction():
            with pytest.raises(AssertionError):
                await conn.execute(statement, values)


async def test_a_recount_holds_no_account_while_it_waits_for_another(database: Database) -> None:
    first, second, pool, worker = await two_accounts(database)
    async with database.durable() as conn:
        await conn.execute("update sched set ready = ready + 1")
    async with await psycopg.AsyncConnection.connect(database.url) as frozen, database.relaxed() as conn:
        await frozen.execute("select from sched where tenant_id = %s for update", (second,))
        recount = asyncio.create_task(_recount(database))
        await support.until_waiting_or(database, recount)
        lease = await support.claim(conn, pool, worker)
        assert lease is not None
        assert lease.tenant_id == first
        done = await recount
        assert ([drift.tenant_id for drift in done.drifts], done.left) == ([first], [(pool, second)])
        await frozen.rollback()
        assert [drift.tenant_id for drift in (await _recount(database)).drifts] == [second]


async def _recount(database: Database) -> order_drift.Recount:
    async with database.relaxed() as conn:
        return await order_drift.recompute(conn)


async def test_the_duty_says_which_account_it_could_not_count(database: Database, settings: Settings) -> None:
    _, second, pool, _ = await two_accounts(database)
    async with await psycopg.AsyncConnection.connect(database.url) as frozen:
        await frozen.execute("select from sched where tenant_id = %s for update", (second,))
        with pytest.raises(HeldUp, match=f"account {second} in pool {pool}"):
            await duties.fair_order(work(database, settings))


async def test_the_stewards_sweeps_leave_a_locked_account_for_later(database: Database) -> None:
    first, second, _, worker = await two_accounts(database)
    due = "update chunk set state = 'delayed', not_before = now() - interval '1 second'"
    lost = f"update chunk set state = 'leased', token = 1, worker_id = {worker}"
    paused, opened = "update batch set state = 'paused'", "update batch set state = 'open'"
    lapsed = f"update worker set lease_until = now() - interval '1 second' where worker_id = {worker}"
    states = "select tenant_id, state from chunk group by 1, 2 order by 1"
    steps: list[tuple[tuple[str, ...], Callable[[Connection], Awaitable[object]], str]] = [
        ((due,), chunk_sweeps.promote, "ready"),
        ((paused,), chunk_sweeps.sweep, "held"),
        ((opened,), chunk_sweeps.sweep, "ready"),
        ((lost, lapsed), reaping.reap, "ready"),
    ]
    async with await psycopg.AsyncConnection.connect(database.url) as frozen, database.relaxed() as conn:
        await frozen.execute("set idle_in_transaction_session_timeout = 0")
        await frozen.commit()
        for before, verb, after in steps:
            for statement in before:
                await conn.execute(statement)
            old = await (await conn.execute(states)).fetchall()
            await frozen.execute("select from sched where tenant_id = %s for update", (second,))
            await verb(conn)
            assert await (await conn.execute(states)).fetchall() == [(first, after), old[1]], verb
            await frozen.rollback()
            await verb(conn)
            assert await (await conn.execute(states)).fetchall() == [(first, after), (second, after)], verb
            await conn.execute("update sched set ready = 4, inflight_tokens = 0")


async def two_accounts(database: Database) -> tuple[int, int, int, int]:
    """Two accounts with four ready chunks each, their pool, and a worker."""
    async with database.durable() as conn:
        first, second = await support.make_tenant(conn, "a"), await support.make_tenant(conn, "b")
        pool = await support.make_pool(conn)
    for tenant in (first, second):
        await support.submit(database, tenant, pool, 4, max_items=1)
    return first, second, pool, await support.make_worker(database, pool)
