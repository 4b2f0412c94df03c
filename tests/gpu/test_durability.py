"""What a worker forgets for good must be on disk by then; of what is not, the heartbeat reminds it."""

from app.db.pool import Database
from tests.db import commits
from tests.gpu.world import World
from tests.queue import support


async def test_results_and_leases_wait_for_the_disk_and_the_end_of_a_lease_does_not(
    world: World, database: Database
) -> None:
    batch = await world.submit([f"prompt {n}" for n in range(16)])
    async with database.durable() as conn:
        await commits.watch(conn, "item_result")
        await commits.watch(conn, "chunk", "delete")
        await commits.watch(conn, "worker", "update")
    async with world.worker():
        await world.finished(batch)
    async with database.relaxed() as conn:
        assert await commits.seen(conn) == {
            ("INSERT item_result", "on"),
            ("DELETE chunk", "off"),
            ("UPDATE worker", "on"),
        }


async def test_a_finish_that_a_server_crash_took_back_is_done_again(world: World) -> None:
    """The chunk is leased to a worker that lives and has forgotten it; its results are there already."""
    batch = await world.submit([f"prompt {n}" for n in range(8)])
    async with world.worker(heartbeat_seconds=0.1):
        await world.finished(batch)
        await world.fetch("update batch set state = 'open', finalized_at = null, ok = 0 returning 1")
        await world.fetch(
            "insert into chunk (batch_id, run, tenant_id, pool_id, lo, hi, n, est_tokens, deadline, state, token, worker_id)"
            " select %s, 1, %s, %s, 0, 7, 8, 800, now(), 'leased', 1, worker_id from worker returning 1",
            batch,
            world.tenant,
            world.pool,
        )
        await world.fetch("update sched set inflight_tokens = inflight_tokens + 800 returning 1")
        await world.finished(batch)
    assert await world.fetch("select ok, state from batch") == [(8, "completed")]
    assert await world.fetch(support.CACHES) == [(0, 0)]
    assert world.engine.count.total() == 8
