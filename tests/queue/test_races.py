"""Races of two connections: one holds a transaction open while the other acts. Locks decide the order, not timing."""

import asyncio
from dataclasses import dataclass
from uuid import UUID

import pytest
from psycopg import Rollback

from app.db.pool import Connection, Database
from app.queue import (
    batch_state,
    batch_state_sql,
    chunk_sweeps,
    expiry,
    fair_order_sql,
    ingest,
    order_drift,
    reaping,
    reaping_sql,
    service,
    settling,
)
from app.queue.chunking import cut
from app.queue.types import Lease
from app.settings import Settings
from app.states import BatchState, ChunkState
from app.worker_lease import WORKER_LEASE_LAPSED
from tests.queue import support
from workers.steward.rounds import Rounds

pytestmark = pytest.mark.holds_accounts  # on purpose


@dataclass(frozen=True)
class World:
    """One tenant, one pool, one worker."""

    database: Database
    tenant: int
    pool: int
    worker: int

    async def submit(self, items: int = 4, *, max_items: int = 16) -> ingest.NewBatch:
        return await support.submit(self.database, self.tenant, self.pool, items, max_items=max_items)

    async def claim(self, conn: Connection) -> Lease:
        lease = await support.claim(conn, self.pool, self.worker)
        assert lease is not None
        return lease

    async def leased(self) -> Lease:
        async with self.database.relaxed() as conn:
            return await self.claim(conn)

    async def change_state(self, verb: str, batch: ingest.NewBatch) -> int | None:
        """Change a batch's state as a caller's request does, in one transaction. Returns its id, if it was changed."""
        async with self.database.transaction() as conn:
            moved = await batch_state.transition(conn, verb, self.tenant, batch.request_id)
            return moved and moved[0]

    async def store(self, lease: Lease, *, keep: int = 99) -> None:
        """Flush results of the first `keep` items."""
        async with self.database.durable() as conn:
            items = await service.load(conn, lease)
            assert await service.flush(conn, lease, support.answers(items[:keep]))

    async def retry(self, batch: ingest.NewBatch) -> int | None:
        """Retry as a caller's request does. Returns how many items run again."""
        async with self.database.transaction() as conn:
            return await self.retry_in(conn, batch)

    async def retry_in(self, conn: Connection, batch: ingest.NewBatch) -> int | None:
        reopened = await batch_state.reopen(conn, self.tenant, batch.request_id, None)
        return None if reopened is None else await self.requeue(conn, reopened)

    async def requeue(self, conn: Connection, batch: batch_state.Reopened) -> int:
        [(seqs, tokens)] = (await batch_state.unanswered(conn, batch.batch_id)).values()
        cuts = cut(tokens, max_tokens=16_000, max_items=16, seqs=seqs)
        await batch_state.requeue(conn, batch, self.tenant, self.pool, cuts)
        return len(seqs)

    async def lapse(self) -> None:
        async with self.database.durable() as conn:
            await conn.execute("update worker set lease_until = now() - interval '1 second'")

    async def sweep(self) -> int:
        async with self.database.relaxed() as conn:
            return await chunk_sweeps.sweep(conn)

    async def reap(self) -> tuple[int, int]:
        async with self.database.relaxed() as conn:
            return await reaping.reap(conn)

    async def promote(self) -> int:
        async with self.database.relaxed() as conn:
            return await chunk_sweeps.promote(conn)

    async def drain(self) -> None:
        await support.drain(self.database, self.pool, await support.make_worker(self.database, self.pool))

    async def chunks(self) -> list[str]:
        return [row[0] for row in await self.rows("select state from chunk order by chunk_id")]

    async def rows(self, sql: str) -> list[tuple[object, ...]]:
        async with self.database.relaxed() as conn:
            return await (await conn.execute(sql)).fetchall()

    async def exact(self) -> bool:
        """Whether the cached counts of the fair order match the chunks."""
        async with self.database.transaction() as conn:
            return (await order_drift.recompute(conn)).drifts == []

    async def ends(self, state: BatchState, ok: int) -> None:
        """Assert that one batch ends, once, and leaves nothing in the queue."""
        settled = await support.settle(self.database) + await support.settle(self.database)
        assert [(one.state, one.ok) for one in settled] == [(state, ok)]
        await self.nothing_is_left()

    async def nothing_is_left(self) -> None:
        assert await self.chunks() == []
        assert await self.rows("select from batch_delta") == []
        async with self.database.relaxed() as conn:
            assert set(await support.caches(conn)) == {(0, 0)}


@pytest.fixture
async def world(database: Database) -> World:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    return World(database, tenant, pool, await support.make_worker(database, pool))


# ---------------------------------------------------------------- cancel


async def test_an_uncommitted_claim_survives_a_cancel_and_the_next_heartbeat_reports_the_cancel(world: World) -> None:
    batch = await world.submit(8, max_items=4)
    async with world.database.transaction() as conn:
        lease = await world.claim(conn)
        items = await service.load(conn, lease)
        cancel = asyncio.create_task(world.change_state("cancel", batch))
        await support.until_waiting(world.database)
    assert await cancel == batch.batch_id
    assert await world.chunks() == [ChunkState.LEASED]
    async with world.database.relaxed() as conn:
        held = await support.beat(conn, world.worker, 30)
    assert held is not None
    assert [(one.chunk_id, one.token, one.batch) for one in held] == [
        (lease.chunk_id, lease.token, BatchState.CANCELLING)
    ]
    assert await support.settle(world.database) == []
    async with world.database.relaxed() as conn:
        assert await service.load(conn, lease) == []  # none of its items is started
        assert await service.flush(conn, lease, support.answers(items[:3]))
        assert await service.finish(conn, lease) is not None
    await world.sweep()
    await world.ends(BatchState.CANCELLED, 3)


async def test_a_claim_that_waits_for_a_cancel_gets_no_chunk_of_that_batch(world: World) -> None:
    """Both wait for a lock on the tenant's row, the cancel first."""
    batch = await world.submit()
    async with world.database.transaction() as conn:
        assert (await batch_state.transition(conn, "cancel", world.tenant, batch.request_id) or [0])[
            0
        ] == batch.batch_id
        async with world.database.relaxed() as other:
            assert await support.claim(other, world.pool, world.worker) is None
        await settling.finalise(conn, [batch.batch_id])
    assert await support.settle(world.database) == []
    await world.nothing_is_left()


@pytest.mark.parametrize("first", ["cancel", "finish"])
async def test_a_chunk_that_a_finish_returns_to_a_cancelled_batch_is_removed_and_the_batch_ends(
    world: World, first: str
) -> None:
    batch = await world.submit()
    lease = await world.leased()
    await world.store(lease, keep=2)
    if first == "finish":
        async with world.database.transaction() as conn:
            assert await service.finish(conn, lease) is not None
            assert await world.change_state("cancel", batch) == batch.batch_id
    else:
        async with world.database.transaction() as conn:
            assert (await batch_state.transition(conn, "cancel", world.tenant, batch.request_id) or [0])[
                0
            ] == batch.batch_id
            async with world.database.relaxed() as other:
                assert await service.finish(other, lease) is not None
            assert await settling.finalise(conn, [batch.batch_id]) == []
    assert await world.chunks() == [ChunkState.DELAYED]
    assert await world.sweep() == 1
    await world.ends(BatchState.CANCELLED, 2)


async def test_a_chunk_reaped_while_its_batch_is_cancelled_is_removed_and_the_batch_ends(world: World) -> None:
    batch = await world.submit()
    await world.leased()
    await world.lapse()
    async with world.database.transaction() as conn:
        assert await reaping.reap(conn) == (1, 1)
        cancel = asyncio.create_task(world.change_state("cancel", batch))
        assert await cancel == batch.batch_id
    assert await world.chunks() == [ChunkState.READY]
    assert await world.sweep() == 1
    await world.ends(BatchState.CANCELLED, 0)


async def test_results_of_a_lost_worker_are_counted_although_its_chunk_is_removed(world: World) -> None:
    """Otherwise the next run could never reach its total, and would never end."""
    batch = await world.submit()
    await world.store(await world.leased(), keep=3)
    await world.lapse()
    await world.reap()
    await world.change_state("cancel", batch)
    await world.ends(BatchState.CANCELLED, 3)
    assert await world.rows("select completion_tokens from batch") == [(15,)]
    assert await world.retry(batch) == 1
    await world.drain()
    await world.ends(BatchState.COMPLETED, 4)


async def test_of_a_concurrent_cancel_and_pause_the_cancel_wins(world: World) -> None:
    batch = await world.submit()
    async with world.database.transaction() as conn:
        assert (await batch_state.transition(conn, "pause", world.tenant, batch.request_id) or [0])[0] == batch.batch_id
        cancel = asyncio.create_task(world.change_state("cancel", batch))
        await support.until_waiting(world.database)
    assert await cancel == batch.batch_id
    await world.ends(BatchState.CANCELLED, 0)


# ---------------------------------------------------------------- pause and resume


async def test_a_chunk_that_a_finish_returns_to_a_paused_batch_is_held_until_the_resume(world: World) -> None:
    batch = await world.submit()
    lease = await world.leased()
    async with world.database.transaction() as conn:
        assert await service.finish(conn, lease) is not None
        assert await world.change_state("pause", batch) == batch.batch_id
    assert await world.chunks() == [ChunkState.DELAYED]
    assert await world.sweep() == 1
    assert await world.promote() == 0
    async with world.database.relaxed() as conn:
        assert await support.claim(conn, world.pool, world.worker) is None
    assert await world.change_state("resume", batch) == batch.batch_id
    assert await world.exact()
    await world.drain()
    await world.ends(BatchState.COMPLETED, 4)


@pytest.mark.parametrize("first", ["pause", "promote"])
async def test_a_chunk_promoted_while_its_batch_is_paused_is_held(world: World, first: str) -> None:
    batch = await world.submit()
    lease = await world.leased()
    async with world.database.relaxed() as conn:
        assert await service.finish(conn, lease) is not None
    pausing = first == "pause"
    async with world.database.transaction() as conn:
        if pausing:
            await batch_state.transition(conn, "pause", world.tenant, batch.request_id)
        else:
            await chunk_sweeps.promote(conn)
        other = asyncio.create_task(world.promote() if pausing else world.change_state("pause", batch))
        if not pausing:
            await support.until_waiting(world.database)
    await other
    await world.sweep()
    assert await world.chunks() == [ChunkState.HELD]
    assert await world.exact()
    await world.change_state("resume", batch)
    await world.drain()
    await world.ends(BatchState.COMPLETED, 4)


async def test_a_pause_and_a_promotion_never_deadlock(world: World) -> None:
    """The pause locks chunks in physical order, the promotion by due time. A third transaction stops both half way."""
    batch = await world.submit(3, max_items=1)
    async with world.database.durable() as conn:
        leases = [await world.claim(conn) for _ in range(3)]
        for lease in leases:
            await service.finish(conn, lease)
        ids = [row[0] for row in await world.rows("select chunk_id from chunk order by ctid")]
        for age, chunk in enumerate(ids):
            due = "update chunk set not_before = now() - make_interval(secs => %s) where chunk_id = %s"
            await conn.execute(due, (100 + age, chunk))
        await conn.execute("vacuum full chunk")
        ids = [row[0] for row in await world.rows("select chunk_id from chunk order by ctid")]
        for setting in ("enable_seqscan", "enable_bitmapscan", "enable_sort"):
            await conn.execute(f"set {setting} = off")  # the plans of a large table
        async with world.database.transaction() as third:
            await third.execute("select from chunk where chunk_id = %s for update", (ids[1],))
            promotion = asyncio.create_task(chunk_sweeps.promote(conn))
            await support.until_waiting_or(world.database, promotion)
            pause = asyncio.create_task(world.change_state("pause", batch))
            await support.until_waiting(world.database, 1 if promotion.done() else 2)
        await promotion
        await pause
    await world.sweep()
    assert await world.chunks() == [ChunkState.HELD] * 3
    assert await world.exact()


async def test_a_chunk_held_by_a_sweep_that_saw_the_pause_runs_after_the_resume(world: World) -> None:
    """The resume finds no held chunk, since the first sweep has not committed. The next sweep releases it."""
    batch = await world.submit()
    lease = await world.leased()
    await world.change_state("pause", batch)
    async with world.database.relaxed() as conn:
        await service.finish(conn, lease)
        await chunk_sweeps.promote(conn)
    async with world.database.transaction() as conn:
        assert await chunk_sweeps.sweep(conn) == 1
        assert await world.change_state("resume", batch) == batch.batch_id
    assert await world.chunks() == [ChunkState.HELD]
    async with world.database.relaxed() as conn:
        assert await settling.has_work(conn)
    assert await world.sweep() == 1
    assert await world.exact()
    await world.drain()
    await world.ends(BatchState.COMPLETED, 4)


# ---------------------------------------------------------------- reap


async def test_a_flush_before_the_reap_counts_and_is_not_run_again(world: World) -> None:
    await world.submit()
    lease = await world.leased()
    await world.lapse()
    async with world.database.transaction() as conn:
        items = await service.load(conn, lease)
        assert await service.flush(conn, lease, support.answers(items[:3]))
        assert (await world.reap())[0] == 1  # the worker; its chunk is locked, so the next round takes it
    await world.reap()
    async with world.database.relaxed() as conn:
        assert not await service.flush(conn, lease, support.answers(items))
        heir = await support.make_worker(world.database, world.pool)
        again = await support.claim(conn, world.pool, heir)
        assert again is not None
        assert [item.seq for item in await service.load(conn, again)] == [3]
    await support.run_chunk(world.database, again)
    await world.ends(BatchState.COMPLETED, 4)


async def test_a_flush_that_waited_for_the_reaper_stores_nothing(world: World) -> None:
    await world.submit()
    lease = await world.leased()
    await world.lapse()
    async with world.database.relaxed() as late:
        items = await service.load(late, lease)
        async with world.database.transaction() as conn:
            assert await reaping.reap(conn) == (1, 1)
            flush = asyncio.create_task(service.flush(late, lease, support.answers(items)))
            await support.until_waiting(world.database)
        assert not await flush
    assert await world.rows("select from item_result") == []
    await world.drain()
    await world.ends(BatchState.COMPLETED, 4)


@pytest.mark.parametrize("first", ["reap", "finish"])
async def test_of_a_concurrent_reap_and_finish_only_the_first_ends_the_lease(world: World, first: str) -> None:
    await world.submit()
    lease = await world.leased()
    await world.store(lease, keep=3)
    await world.lapse()
    async with world.database.relaxed() as worker:
        async with world.database.transaction() as conn:
            if first == "reap":
                assert await reaping.reap(conn) == (1, 1)
                finish = asyncio.create_task(service.finish(worker, lease))
                await support.until_waiting(world.database)
            else:
                assert await service.finish(conn, lease) is not None
                assert await world.reap() == (1, 0)
        if first == "reap":
            assert await finish is None
        else:
            assert await world.reap() == (0, 0)
    assert await world.exact()
    assert len(await world.chunks()) == 1
    await world.promote()
    await world.drain()
    await world.ends(BatchState.COMPLETED, 4)


@pytest.mark.parametrize("first", ["reap", "heartbeat"])
async def test_of_a_concurrent_reap_and_heartbeat_the_first_decides_whether_the_worker_keeps_its_lease(
    world: World, first: str
) -> None:
    """Independent of clocks: for this reaper every lease has lapsed, for this worker none has."""
    await world.submit()
    lease = await world.leased()
    reap = reaping_sql.REAP.replace(WORKER_LEASE_LAPSED, f"{WORKER_LEASE_LAPSED} + interval '1 hour'")
    lapsed = {"lapsed": [world.worker], "charged": [world.worker]}
    if first == "heartbeat":
        async with world.database.transaction() as conn:
            assert await support.beat(conn, world.worker, 30)
            async with world.database.transaction() as reaper:
                assert await (await reaper.execute(reap, lapsed)).fetchone() == (0, 0)
        await world.store(lease)
        assert await world.chunks() == [ChunkState.LEASED]
    else:
        async with world.database.relaxed() as worker:
            async with world.database.transaction() as conn:
                assert await (await conn.execute(reap, lapsed)).fetchone() == (1, 1)
                beat = asyncio.create_task(support.beat(worker, world.worker, 30))
                await support.until_waiting(world.database)
            assert await beat is None
            assert not await service.flush(worker, lease, support.answers(await service.load(worker, lease)))
        assert await world.chunks() == [ChunkState.READY]
    assert await world.exact()


# ---------------------------------------------------------------- the end of a batch


@pytest.mark.parametrize("first", ["expire", "settle"])
async def test_a_batch_that_expires_when_all_its_items_are_answered_is_complete(world: World, first: str) -> None:
    await world.submit()
    await world.drain()
    async with world.database.durable() as conn:
        await conn.execute("update batch set expires_at = now() - interval '1 second'")

    async def expire() -> int:
        async with world.database.relaxed() as conn:
            return await expiry.expire(conn)

    async with world.database.transaction() as conn:
        if first == "settle":
            settled, *_ = await settling.settle(conn)
            other = asyncio.create_task(expire())
            await support.until_waiting(world.database)
        else:
            assert await expiry.expire(conn) == 1
            later = asyncio.create_task(support.settle(world.database))
            await support.until_waiting(world.database)
    if first == "settle":
        assert await other == 0
    else:
        settled = await later
    assert [(one.state, one.ok) for one in settled] == [(BatchState.COMPLETED, 4)]
    assert await support.settle(world.database) == []
    await world.nothing_is_left()


@pytest.mark.parametrize("folded", [False, True])
async def test_two_stewards_settling_at_once_end_each_batch_once(world: World, folded: bool) -> None:
    """Whether the second steward skips the locked rows or waits for them, it finds nothing to end."""
    batches = [await world.submit() for _ in range(3)]
    await world.drain()
    await world.change_state("cancel", batches[0])
    if folded:
        async with world.database.relaxed() as conn:
            await support.fold(conn)
    async with world.database.transaction() as conn:
        one, *_ = await settling.settle(conn)
        other = asyncio.create_task(support.settle(world.database))
        await support.until_waiting_or(world.database, other)
    assert await other == []
    assert {end.batch_id for end in one} == {batch.batch_id for batch in (batches[:1] if folded else batches)}
    assert await support.settle(world.database) == []
    assert await world.chunks() == []


async def test_a_finish_between_fold_and_end_is_counted_before_the_end(world: World) -> None:
    await world.submit(8, max_items=4)
    one, two = await world.leased(), await world.leased()
    await support.run_chunk(world.database, one)
    async with world.database.transaction() as conn:
        folded = await support.fold(conn)
        await support.run_chunk(world.database, two)
        assert await settling.finalise(conn, folded) == []
    await world.ends(BatchState.COMPLETED, 8)


async def test_a_late_steward_that_ends_a_cancelled_batch_does_not_end_its_next_run(world: World) -> None:
    """It reads the batch before its end. A lock delays it until the batch has ended and was retried."""
    batch = await world.submit()
    lease = await world.leased()
    await world.change_state("cancel", batch)
    async with world.database.relaxed() as conn:
        await service.finish(conn, lease)
        await chunk_sweeps.sweep(conn)
        await support.fold(conn)
    async with world.database.relaxed() as late:
        async with world.database.transaction() as conn:
            await conn.execute("select from batch for update")
            waiting = asyncio.create_task(settling.finalise(late, [], ending=True))
            await support.until_waiting(world.database)
            assert [one.batch_id for one in await settling.finalise(conn, [], ending=True)] == [batch.batch_id]
            assert await world.retry_in(conn, batch) == 4
        assert await waiting == []
    assert await world.rows(f"select state, run from batch where batch_id = {batch.batch_id}") == [("open", 2)]
    await world.drain()
    await world.ends(BatchState.COMPLETED, 4)


async def test_a_cancel_and_a_round_of_the_steward_never_deadlock(world: World) -> None:
    """The steward sweeps one batch of a tenant and folds counts of another one, which its owner cancels meanwhile."""
    batch = await world.submit(8, max_items=4)
    await support.run_chunk(world.database, await world.leased())
    await world.submit()
    async with world.database.relaxed() as conn:
        await conn.execute(
            "update batch set expires_at = now() - interval '1 second' where batch_id <> %s", (batch.batch_id,)
        )
        assert await expiry.expire(conn) == 1
    rounds = Rounds(world.database, Hints(), Settings())
    async with world.database.transaction() as conn:
        parameters = {"tenant_id": world.tenant, "request_id": batch.request_id}
        await conn.execute(batch_state_sql.transition("cancel"), parameters)
        steward = asyncio.create_task(rounds._settle())
        await support.until_waiting(world.database)
        await chunk_sweeps.sweep_batch(conn, batch.batch_id)
    await steward
    await world.sweep()
    await support.settle(world.database)
    assert sorted(await world.rows("select state, ok from batch")) == [("cancelled", 4), ("expired", 0)]
    await world.nothing_is_left()


class Hints:
    """A publisher without a broker."""

    async def endpoints(self, endpoint_ids: list[UUID]) -> bool:
        """Publishes nothing."""
        return not endpoint_ids


async def test_of_two_concurrent_retries_one_begins_a_new_run(world: World) -> None:
    batch = await world.submit()
    await world.change_state("cancel", batch)
    await support.settle(world.database)
    async with world.database.transaction() as conn:
        reopened = await batch_state.reopen(conn, world.tenant, batch.request_id, None)
        assert reopened is not None
        other = asyncio.create_task(world.retry(batch))
        await support.until_waiting(world.database)
        await world.requeue(conn, reopened)
    assert await other is None
    assert await world.rows("select run, state from batch") == [(2, "open")]
    assert await world.chunks() == [ChunkState.READY]
    await world.drain()
    await world.ends(BatchState.COMPLETED, 4)


# ---------------------------------------------------------------- submit


async def test_of_two_concurrent_submits_with_one_key_one_is_stored_and_the_other_finds_it(world: World) -> None:
    async with world.database.transaction() as one, world.database.transaction() as two:
        assert await ingest.reserve_key(one, world.tenant, "key")
        first = await support.new_batch(one, world.tenant, world.pool, 4, key="key")
        assert await support.put(one, first, [100] * 4) == 1
        assert not await ingest.reserve_key(two, world.tenant, "key")
    async with world.database.transaction() as conn:
        assert await ingest.reserve_key(conn, world.tenant, "key")
        again = await support.new_batch(conn, world.tenant, world.pool, 4, key="key")
        assert await support.put(conn, again, [100] * 4) is None
        assert await ingest.find_key(conn, world.tenant, "key") == (first.request_id, b"hash")
    assert await world.rows("select (select count(*) from batch), (select count(*) from item_payload)") == [(1, 4)]
    assert await world.exact()


@pytest.mark.parametrize("commits", [True, False])
async def test_a_submit_whose_key_is_being_stored_waits_and_writes_only_if_the_other_does_not(
    world: World, commits: bool
) -> None:
    """Without the advisory lock; the unique index alone is enough."""
    batches = [await _keyed(world), await _keyed(world)]

    async def submit() -> int | None:
        async with world.database.transaction() as conn:
            return await support.put(conn, batches[1], [100] * 4)

    async with world.database.transaction() as conn:
        assert await support.put(conn, batches[0], [100] * 4) == 1
        other = asyncio.create_task(submit())
        await support.until_waiting(world.database)
        if not commits:
            raise Rollback
    assert await other == (None if commits else 1)
    stored = batches[0 if commits else 1].batch_id
    assert await world.rows("select distinct batch_id from chunk") == [(stored,)]
    assert await world.exact()


async def _keyed(world: World) -> ingest.NewBatch:
    async with world.database.relaxed() as conn:
        return await support.new_batch(conn, world.tenant, world.pool, 4, key="key")


async def test_two_concurrent_submits_of_a_new_tenant_are_both_counted_and_neither_waits(world: World) -> None:
    """Neither sees the other's row of `sched` while it inserts its own."""
    async with world.database.transaction() as conn:
        batch = await support.new_batch(conn, world.tenant, world.pool, 4)
        await support.put(conn, batch, [100] * 4)
        await world.submit(8, max_items=4)
    assert await world.rows("select ready from sched") == [(3,)]


# ---------------------------------------------------------------- the caches


@pytest.mark.parametrize("first", ["claim", "recompute"])
async def test_a_claim_during_a_recompute_leaves_the_caches_exact(world: World, first: str) -> None:
    await world.submit(8, max_items=4)
    async with world.database.durable() as conn:
        await conn.execute("update sched set ready = ready + 5, inflight_tokens = 77")  # a drift to correct
    async with world.database.transaction() as conn:
        if first == "claim":
            await world.claim(conn)
            async with world.database.relaxed() as other:
                assert await order_drift.recompute(other) == order_drift.Recount([], [(world.pool, world.tenant)])
            leasing = None
        else:
            await conn.execute(fair_order_sql.LOCK_FREE_CACHES)
            leasing = asyncio.create_task(_leased(world))
            await support.until_waiting(world.database)
            await conn.execute(fair_order_sql.RECOMPUTE)
    if leasing is not None:
        await leasing
    else:
        async with world.database.relaxed() as conn:
            assert len((await order_drift.recompute(conn)).drifts) == 1
    assert await world.rows("select ready, inflight_tokens from sched") == [(1, 400)]


async def _leased(world: World) -> None:
    await world.leased()
