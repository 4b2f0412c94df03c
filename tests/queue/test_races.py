"""Two connections at once: a transaction held open on one while the other acts. No timing decides; locks do."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import pytest
from psycopg import Rollback

from app.db.pool import Connection, Database
from app.queue import fair_order_sql, ingest, lifecycle, lifecycle_sql, maintenance, service
from app.queue import maintenance_sql as queries
from app.queue.chunking import cut
from app.queue.types import Lease
from app.settings import Settings
from app.states import BatchState, ChunkState
from tests.queue import support
from workers.steward.rounds import Rounds


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
        lease = await service.claim(conn, self.pool, self.worker)
        assert lease is not None
        return lease

    async def leased(self) -> Lease:
        async with self.database.relaxed() as conn:
            return await self.claim(conn)

    async def halt(self, verb: str, batch: ingest.NewBatch) -> int | None:
        """As a caller's request: one transaction."""
        async with self.database.transaction() as conn:
            return await lifecycle.change_state(conn, verb, self.tenant, batch.request_id)

    async def store(self, lease: Lease, *, keep: int = 99) -> None:
        """Flush results of the first `keep` items."""
        async with self.database.durable() as conn:
            items = await service.load(conn, lease)
            assert await service.flush(conn, lease, support.answers(items[:keep]))

    async def retry(self, batch: ingest.NewBatch) -> int | None:
        """As a caller's request. Returns how many items run again."""
        async with self.database.transaction() as conn:
            reopened = await lifecycle.reopen(conn, self.tenant, batch.request_id, None)
            return None if reopened is None else await self.requeue(conn, reopened)

    async def requeue(self, conn: Connection, batch: lifecycle.Reopened) -> int:
        [(seqs, tokens)] = (await lifecycle.unanswered(conn, batch.batch_id)).values()
        cuts = cut(tokens, max_tokens=16_000, max_items=16, seqs=seqs)
        await lifecycle.requeue(conn, batch, self.tenant, self.pool, cuts)
        return len(seqs)

    async def lapse(self) -> None:
        async with self.database.durable() as conn:
            await conn.execute("update worker set lease_until = now() - interval '1 second'")

    async def sweep(self) -> int:
        async with self.database.relaxed() as conn:
            return await maintenance.sweep(conn)

    async def reap(self) -> tuple[int, int]:
        async with self.database.relaxed() as conn:
            return await maintenance.reap(conn)

    async def promote(self) -> int:
        async with self.database.relaxed() as conn:
            return await maintenance.promote(conn)

    async def drain(self) -> None:
        await support.drain(self.database, self.pool, await support.make_worker(self.database, self.pool))

    async def chunks(self) -> list[str]:
        return [row[0] for row in await self.rows("select state from chunk order by chunk_id")]

    async def rows(self, sql: str) -> list[tuple[object, ...]]:
        async with self.database.relaxed() as conn:
            return await (await conn.execute(sql)).fetchall()

    async def exact(self) -> bool:
        """Whether the caches of the fair order say what the chunks say."""
        async with self.database.transaction() as conn:
            return await maintenance.recompute(conn) == []

    async def ends(self, state: BatchState, ok: int) -> None:
        """One batch ends, once, and leaves nothing behind."""
        settled = await support.settle(self.database) + await support.settle(self.database)
        assert [(one.state, one.ok) for one in settled] == [(state, ok)]
        await self.nothing_is_left()

    async def nothing_is_left(self) -> None:
        assert await self.chunks() == []
        assert await self.rows("select from batch_delta") == []
        async with self.database.relaxed() as conn:
            assert set(await support.caches(conn)) == {(0, 0)}


@pytest.fixture(scope="module")
def database_url(server_settings: Settings, template: str) -> Iterator[str]:
    """One database for all of them; each begins with empty tables."""
    with support.copied(server_settings, template, "races") as url:
        yield url


@pytest.fixture
async def world(database: Database) -> World:
    async with database.durable() as conn:
        await support.clear(conn)
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    return World(database, tenant, pool, await support.make_worker(database, pool))


# ---------------------------------------------------------------- cancel


async def test_a_claim_that_is_not_committed_survives_a_cancel_and_its_worker_hears_of_it(world: World) -> None:
    batch = await world.submit(8, max_items=4)
    async with world.database.transaction() as conn:
        lease = await world.claim(conn)
        items = await service.load(conn, lease)
        cancel = asyncio.create_task(world.halt("cancel", batch))
        await support.until_waiting(world.database)
    assert await cancel == batch.batch_id
    assert await world.chunks() == [ChunkState.LEASED]
    async with world.database.relaxed() as conn:
        held = await service.heartbeat(conn, world.worker, 30)
    assert held is not None
    assert [(one.chunk_id, one.token, one.batch) for one in held] == [
        (lease.chunk_id, lease.token, BatchState.CANCELLING)
    ]
    assert await support.settle(world.database) == []
    async with world.database.relaxed() as conn:
        assert await service.load(conn, lease) == []  # nothing of it is started any more
        assert await service.flush(conn, lease, support.answers(items[:3]))
        assert await service.finish(conn, lease) is not None
    await world.sweep()
    await world.ends(BatchState.CANCELLED, 3)


async def test_a_claim_that_waits_for_a_cancel_gets_nothing_of_it(world: World) -> None:
    """Both wait behind somebody on the tenant's row, the cancel first."""
    batch = await world.submit()
    async with world.database.transaction() as conn:
        assert await lifecycle.change_state(conn, "cancel", world.tenant, batch.request_id) == batch.batch_id
        async with world.database.relaxed() as other:
            assert await service.claim(other, world.pool, world.worker) is None
        await maintenance.finalise(conn, [batch.batch_id])
    assert await support.settle(world.database) == []
    await world.nothing_is_left()


@pytest.mark.parametrize("first", ["cancel", "finish"])
async def test_what_a_finish_gives_back_to_a_cancelled_batch_is_swept_and_the_batch_ends(
    world: World, first: str
) -> None:
    batch = await world.submit()
    lease = await world.leased()
    await world.store(lease, keep=2)
    if first == "finish":
        async with world.database.transaction() as conn:
            assert await service.finish(conn, lease) is not None
            assert await world.halt("cancel", batch) == batch.batch_id
    else:
        async with world.database.transaction() as conn:
            assert await lifecycle.change_state(conn, "cancel", world.tenant, batch.request_id) == batch.batch_id
            async with world.database.relaxed() as other:
                assert await service.finish(other, lease) is not None
            assert await maintenance.finalise(conn, [batch.batch_id]) == []
    assert await world.chunks() == [ChunkState.DELAYED]
    assert await world.sweep() == 1
    await world.ends(BatchState.CANCELLED, 2)


async def test_a_chunk_reaped_while_its_batch_is_cancelled_is_swept_and_the_batch_ends(world: World) -> None:
    batch = await world.submit()
    await world.leased()
    await world.lapse()
    async with world.database.transaction() as conn:
        assert await maintenance.reap(conn) == (1, 1)
        cancel = asyncio.create_task(world.halt("cancel", batch))
        assert await cancel == batch.batch_id
    assert await world.chunks() == [ChunkState.READY]
    assert await world.sweep() == 1
    await world.ends(BatchState.CANCELLED, 0)


async def test_what_a_lost_worker_had_stored_is_counted_though_its_chunk_is_swept(world: World) -> None:
    """Otherwise the next run could never reach its total, and would not end."""
    batch = await world.submit()
    await world.store(await world.leased(), keep=3)
    await world.lapse()
    await world.reap()
    await world.halt("cancel", batch)
    await world.ends(BatchState.CANCELLED, 3)
    assert await world.rows("select completion_tokens from batch") == [(15,)]
    assert await world.retry(batch) == 1
    await world.drain()
    await world.ends(BatchState.COMPLETED, 4)


async def test_of_cancel_and_pause_at_once_the_cancel_prevails(world: World) -> None:
    batch = await world.submit()
    async with world.database.transaction() as conn:
        assert await lifecycle.change_state(conn, "pause", world.tenant, batch.request_id) == batch.batch_id
        cancel = asyncio.create_task(world.halt("cancel", batch))
        await support.until_waiting(world.database)
    assert await cancel == batch.batch_id
    await world.ends(BatchState.CANCELLED, 0)


# ---------------------------------------------------------------- pause and resume


async def test_what_a_finish_gives_back_to_a_paused_batch_is_held_until_the_resume(world: World) -> None:
    batch = await world.submit()
    lease = await world.leased()
    async with world.database.transaction() as conn:
        assert await service.finish(conn, lease) is not None
        assert await world.halt("pause", batch) == batch.batch_id
    assert await world.chunks() == [ChunkState.DELAYED]
    assert await world.sweep() == 1
    assert await world.promote() == 0
    async with world.database.relaxed() as conn:
        assert await service.claim(conn, world.pool, world.worker) is None
    assert await world.halt("resume", batch) == batch.batch_id
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
            await lifecycle.change_state(conn, "pause", world.tenant, batch.request_id)
        else:
            await maintenance.promote(conn)
        other = asyncio.create_task(world.promote() if pausing else world.halt("pause", batch))
        if not pausing:
            await support.until_waiting(world.database)
    await other
    await world.sweep()
    assert await world.chunks() == [ChunkState.HELD]
    assert await world.exact()
    await world.halt("resume", batch)
    await world.drain()
    await world.ends(BatchState.COMPLETED, 4)


async def test_a_pause_and_a_promotion_never_wait_for_each_other_in_a_circle(world: World) -> None:
    """The pause takes the chunks as they lie, the promotion as they are due; a third one keeps both in the middle."""
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
            promotion = asyncio.create_task(maintenance.promote(conn))
            await support.until_waiting_or(world.database, promotion)
            pause = asyncio.create_task(world.halt("pause", batch))
            await support.until_waiting(world.database, 1 if promotion.done() else 2)
        await promotion
        await pause
    await world.sweep()
    assert await world.chunks() == [ChunkState.HELD] * 3
    assert await world.exact()


async def test_a_chunk_held_by_a_sweep_that_saw_the_pause_runs_after_the_resume(world: World) -> None:
    """The resume finds nothing held yet, since the sweep has not committed; the next sweep lets go."""
    batch = await world.submit()
    lease = await world.leased()
    await world.halt("pause", batch)
    async with world.database.relaxed() as conn:
        await service.finish(conn, lease)
        await maintenance.promote(conn)
    async with world.database.transaction() as conn:
        assert await maintenance.sweep(conn) == 1
        assert await world.halt("resume", batch) == batch.batch_id
    assert await world.chunks() == [ChunkState.HELD]
    async with world.database.relaxed() as conn:
        assert await maintenance.has_work(conn)
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
        assert (await world.reap())[0] == 1  # the worker; its chunk is locked, and is left to the next round
    await world.reap()
    async with world.database.relaxed() as conn:
        assert not await service.flush(conn, lease, support.answers(items))
        heir = await support.make_worker(world.database, world.pool)
        again = await service.claim(conn, world.pool, heir)
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
            assert await maintenance.reap(conn) == (1, 1)
            flush = asyncio.create_task(service.flush(late, lease, support.answers(items)))
            await support.until_waiting(world.database)
        assert not await flush
    assert await world.rows("select from item_result") == []
    await world.drain()
    await world.ends(BatchState.COMPLETED, 4)


@pytest.mark.parametrize("first", ["reap", "finish"])
async def test_of_a_reap_and_a_finish_at_once_only_the_first_ends_the_lease(world: World, first: str) -> None:
    await world.submit()
    lease = await world.leased()
    await world.store(lease, keep=3)
    await world.lapse()
    async with world.database.relaxed() as worker:
        async with world.database.transaction() as conn:
            if first == "reap":
                assert await maintenance.reap(conn) == (1, 1)
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
async def test_of_a_reap_and_a_heartbeat_at_once_the_first_decides_whether_the_worker_lives(
    world: World, first: str
) -> None:
    """Clocks are left out of it: to this reaper every lease has lapsed, to this worker none has."""
    await world.submit()
    lease = await world.leased()
    reap = queries.REAP.replace("lease_until < now()", "lease_until < now() + interval '1 hour'")
    lapsed = {"lapsed": [world.worker], "charged": [world.worker]}
    if first == "heartbeat":
        async with world.database.transaction() as conn:
            assert await service.heartbeat(conn, world.worker, 30)
            async with world.database.transaction() as reaper:
                assert await (await reaper.execute(reap, lapsed)).fetchone() == (0, 0)
        await world.store(lease)
        assert await world.chunks() == [ChunkState.LEASED]
    else:
        async with world.database.relaxed() as worker:
            async with world.database.transaction() as conn:
                assert await (await conn.execute(reap, lapsed)).fetchone() == (1, 1)
                beat = asyncio.create_task(service.heartbeat(worker, world.worker, 30))
                await support.until_waiting(world.database)
            assert await beat is None
            assert not await service.flush(worker, lease, support.answers(await service.load(worker, lease)))
        assert await world.chunks() == [ChunkState.READY]
    assert await world.exact()


# ---------------------------------------------------------------- the end of a batch


@pytest.mark.parametrize("first", ["expire", "settle"])
async def test_a_batch_whose_time_is_over_when_all_is_answered_is_complete(world: World, first: str) -> None:
    await world.submit()
    await world.drain()
    async with world.database.durable() as conn:
        await conn.execute("update batch set expires_at = now() - interval '1 second'")

    async def expire() -> int:
        async with world.database.relaxed() as conn:
            return await maintenance.expire(conn)

    async with world.database.transaction() as conn:
        if first == "settle":
            settled = await maintenance.settle(conn)
            other = asyncio.create_task(expire())
            await support.until_waiting(world.database)
        else:
            assert await maintenance.expire(conn) == 1
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
    """Whether the second leaves all to the first or waits for it, it finds nothing to end."""
    batches = [await world.submit() for _ in range(3)]
    await world.drain()
    await world.halt("cancel", batches[0])
    if folded:
        async with world.database.relaxed() as conn:
            await conn.execute(queries.FOLD)
    async with world.database.transaction() as conn:
        one = await maintenance.settle(conn)
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
        folded = await (await conn.execute(queries.FOLD)).fetchall()
        await support.run_chunk(world.database, two)
        assert await maintenance.finalise(conn, [row[0] for row in folded]) == []
    await world.ends(BatchState.COMPLETED, 8)


async def test_one_who_comes_late_to_end_a_cancelled_batch_does_not_end_its_next_run(world: World) -> None:
    """It looked before the batch ended and was tried again; another batch keeps it waiting until both have happened."""
    early, batch = await world.submit(), await world.submit()
    leases = [await world.leased(), await world.leased()]
    for each in (early, batch):
        await world.halt("cancel", each)
    async with world.database.relaxed() as conn:
        for lease in leases:
            await service.finish(conn, lease)
        await maintenance.sweep(conn)
        await conn.execute(queries.FOLD)
    only = f"b.batch_id = {batch.batch_id} and b.batch_id = e.batch_id"
    async with world.database.relaxed() as late:
        for setting in ("enable_hashjoin", "enable_mergejoin", "enable_seqscan", "enable_bitmapscan"):
            await late.execute(f"set {setting} = off")  # it goes from batch to batch, in their order
        async with world.database.transaction() as third:
            await third.execute("select from batch where batch_id = %s for update", (early.batch_id,))
            waiting = asyncio.create_task(maintenance.finalise(late, [], ending=True))
            await support.until_waiting(world.database)
            async with world.database.transaction() as conn:
                ended = await conn.execute(
                    lifecycle_sql.FINALISE.replace("b.batch_id = e.batch_id", only), {"ids": [], "all": True}
                )
                assert [row[0] for row in await ended.fetchall()] == [batch.batch_id]
            assert await world.retry(batch) == 4
        assert [one.batch_id for one in await waiting] == [early.batch_id]
    assert await world.rows(f"select state, run from batch where batch_id = {batch.batch_id}") == [("open", 2)]
    await world.drain()
    await world.ends(BatchState.COMPLETED, 4)


async def test_a_cancel_and_a_round_of_the_steward_never_wait_for_each_other_in_a_circle(world: World) -> None:
    """The steward sweeps one batch of a tenant and counts another one, while its owner cancels that other one."""
    batch = await world.submit(8, max_items=4)
    await support.run_chunk(world.database, await world.leased())
    await world.submit()
    async with world.database.relaxed() as conn:
        await conn.execute(
            "update batch set expires_at = now() - interval '1 second' where batch_id <> %s", (batch.batch_id,)
        )
        assert await maintenance.expire(conn) == 1
    rounds = Rounds(world.database, Hints(), Settings())
    async with world.database.transaction() as conn:
        parameters = {"tenant_id": world.tenant, "request_id": batch.request_id}
        await conn.execute(lifecycle_sql.change_state("cancel"), parameters)
        steward = asyncio.create_task(rounds._settle())
        await support.until_waiting(world.database)
        await maintenance.sweep(conn, batch.batch_id)
    await steward
    await world.sweep()
    await support.settle(world.database)
    assert sorted(await world.rows("select state, ok from batch")) == [("cancelled", 4), ("expired", 0)]
    await world.nothing_is_left()


class Hints:
    """Nobody listens."""

    async def endpoints(self, endpoint_ids: list[UUID]) -> bool:
        """Taken by no broker."""
        return not endpoint_ids


async def test_of_two_retries_at_once_one_begins_a_new_run(world: World) -> None:
    batch = await world.submit()
    await world.halt("cancel", batch)
    await support.settle(world.database)
    async with world.database.transaction() as conn:
        reopened = await lifecycle.reopen(conn, world.tenant, batch.request_id, None)
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


async def test_of_two_submits_with_one_key_at_once_one_is_stored_and_the_other_told(world: World) -> None:
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
    """Without the advisory lock: the unique index alone is enough."""
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


async def test_two_submits_of_a_new_tenant_at_once_are_both_counted(world: World) -> None:
    """Neither sees the other's row of the fair order while it writes its own."""
    async with world.database.transaction() as conn:
        batch = await support.new_batch(conn, world.tenant, world.pool, 4)
        await support.put(conn, batch, [100] * 4)
        other = asyncio.create_task(world.submit(8, max_items=4))
        await support.until_waiting(world.database)
    await other
    assert await world.rows("select ready from sched") == [(3,)]


# ---------------------------------------------------------------- the caches


@pytest.mark.parametrize("first", ["claim", "recompute"])
async def test_a_claim_beside_a_recompute_leaves_the_caches_exact(world: World, first: str) -> None:
    await world.submit(8, max_items=4)
    async with world.database.durable() as conn:
        await conn.execute("update sched set ready = ready + 5, inflight_tokens = 77")  # a drift to mend
    async with world.database.transaction() as conn:
        if first == "claim":
            await world.claim(conn)
            other = asyncio.create_task(_recompute(world.database))
        else:
            await conn.execute(fair_order_sql.LOCK_CACHES)
            other = asyncio.create_task(_leased(world))
            await support.until_waiting(world.database)
            await conn.execute(fair_order_sql.RECOMPUTE)
        await support.until_waiting(world.database)
    await other
    assert await world.rows("select ready, inflight_tokens from sched") == [(1, 400)]


async def _recompute(database: Database) -> None:
    async with database.transaction() as conn:
        assert len(await maintenance.recompute(conn)) == 1


async def _leased(world: World) -> None:
    await world.leased()
