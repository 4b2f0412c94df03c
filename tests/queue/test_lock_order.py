"""Several pools in one transaction: their rows of `sched` are always locked in one order, so that no deadlock is possible."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from app.db.pool import Connection, Database
from app.queue import batch_state, chunk_sweeps, copy_format, ingest, order_drift, reaping
from app.queue.chunking import cut
from testing.waiting import in_time
from tests.queue import support

pytestmark = pytest.mark.holds_accounts  # on purpose


async def submit_mixed(conn: Connection, tenant: int, pools: Sequence[int]) -> ingest.NewBatch:
    """A batch of one item for each pool; its own pool is the first."""
    batch = await support.new_batch(conn, tenant, pools[0], len(pools))
    payload = [copy_format.HEADER]
    payload += [copy_format.payload_row(batch.batch_id, seq, None, None, 10, b"{}") for seq in range(len(pools))]
    parts = [cut([10], max_tokens=100, max_items=1, seqs=[seq]) for seq in range(len(pools))]
    elsewhere = dict(zip(pools[1:], parts[1:], strict=True))
    assert await ingest.enqueue(conn, batch, [*payload, copy_format.TRAILER], parts[0], elsewhere) == 1
    return batch


async def two_pools(database: Database, most: int = 2) -> tuple[int, list[int]]:
    """A tenant with pools that have rows in `sched`."""
    async with database.durable() as conn:
        tenant = await support.make_tenant(conn)
        pools = [await support.make_pool(conn, f"m{n}") for n in range(most)]
        async with conn.transaction():
            await submit_mixed(conn, tenant, pools)
    return tenant, pools


async def never_in_a_circle(
    database: Database, pools: Sequence[int], verb: Callable[[Connection], Awaitable[object]]
) -> None:
    """Another transaction locks the first pool's row, then the last one's. `verb` must wait for the first one first."""
    lock = "select from sched where pool_id = %s for update"
    async with in_time():
        async with database.transaction() as other:
            await other.execute(lock, [pools[0]])
            running = asyncio.create_task(_in(database, verb))
            await support.until_waiting_or(database, running)
            await other.execute(lock, [pools[-1]])
        await running


async def _in(database: Database, verb: Callable[[Connection], Awaitable[object]]) -> None:
    """With a plan that reads `sched` in its physical order, which the planner may choose."""
    async with database.transaction() as conn:
        await conn.execute("set local enable_nestloop = off")
        await conn.execute("set local enable_mergejoin = off")
        await verb(conn)


async def test_two_mixed_submits_in_opposite_order_never_deadlock(database: Database) -> None:
    tenant, pools = await two_pools(database)
    await never_in_a_circle(database, pools, lambda conn: submit_mixed(conn, tenant, pools[::-1]))


async def test_a_reap_of_several_pools_never_deadlocks_with_a_mixed_submit(database: Database) -> None:
    _, pools = await two_pools(database, 12)
    async with database.durable() as conn:
        for pool in pools[::-1]:
            worker = await support.make_worker(database, pool, 3600)
            await conn.execute(
                "update chunk set state = 'leased', token = 1, worker_id = %s where pool_id = %s", [worker, pool]
            )
        await conn.execute("update worker set lease_until = now() - interval '1 second'")
        await reversed_rows(conn)
    await never_in_a_circle(database, pools, reaping.reap)


async def test_a_promotion_in_several_pools_never_deadlocks_with_a_mixed_submit(database: Database) -> None:
    _, pools = await two_pools(database, 12)
    async with database.durable() as conn:
        await conn.execute("update chunk set state = 'delayed', not_before = now() - interval '1 second'")
        await reversed_rows(conn)
    await never_in_a_circle(database, pools, chunk_sweeps.promote)


@pytest.mark.parametrize("verb", ["pause", "cancel"])
async def test_halting_a_mixed_batch_never_deadlocks_with_a_mixed_submit(database: Database, verb: str) -> None:
    tenant, pools = await two_pools(database, 12)
    async with database.durable() as conn:
        row = await (await conn.execute("select request_id from batch")).fetchone()
        await reversed_rows(conn)
    assert row is not None
    await never_in_a_circle(database, pools, lambda conn: batch_state.transition(conn, verb, tenant, row[0]))


async def test_a_recompute_never_deadlocks_with_a_mixed_submit(database: Database) -> None:
    _, pools = await two_pools(database, 12)
    async with database.durable() as conn:
        await reversed_rows(conn)
    await never_in_a_circle(database, pools, order_drift.recompute)


async def reversed_rows(conn: Connection) -> None:
    """The rows of `sched` are stored in reverse order, as they may be after updates."""
    kept = "pool_id, tenant_id, vtime, ready, inflight_tokens"
    await conn.execute(f"create temporary table kept as select {kept} from sched".encode())
    await conn.execute("delete from sched")
    await conn.execute(
        f"insert into sched ({kept}) select {kept} from kept order by pool_id desc, tenant_id desc".encode()
    )
    await conn.execute("drop table kept")
