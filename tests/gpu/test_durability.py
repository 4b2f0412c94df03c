"""What a worker forgets for good must be on disk by then; of what is not, the heartbeat reminds it."""

from collections import Counter
from typing import Any

import pytest

from app.db.pool import Connection
from app.queue import service as queue
from app.queue.types import Finished, Lease, Result
from tests.gpu.world import World
from tests.queue import support


async def test_results_wait_for_the_disk_and_the_end_of_a_lease_does_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush, finish, seen = queue.flush, queue.finish, Counter[tuple[str, str]]()

    async def note(conn: Connection, verb: str) -> None:
        row = await (await conn.execute("show synchronous_commit")).fetchone()
        assert row is not None
        seen[verb, row[0]] += 1

    async def noted_flush(conn: Connection, lease: Lease, results: list[Result], **how: Any) -> bool:
        await note(conn, "flush")
        return await flush(conn, lease, results, **how)

    async def noted_finish(conn: Connection, lease: Lease, **how: Any) -> Finished | None:
        await note(conn, "finish")
        return await finish(conn, lease, **how)

    monkeypatch.setattr(queue, "flush", noted_flush)
    monkeypatch.setattr(queue, "finish", noted_finish)
    batch = await world.submit([f"prompt {n}" for n in range(16)])
    async with world.worker():
        await world.finished(batch)
    assert seen.keys() == {("flush", "on"), ("finish", "off")}


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
