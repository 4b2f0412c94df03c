"""Pause, resume, cancel, expiry and retry of a batch: its chunks, and what callers see."""

import uuid

import pytest

from app.batches import lifecycle
from app.db.pool import Database
from app.engines import catalogue
from app.errors import Conflict, NotFound
from app.queue import chunk_sweeps, expiry, ingest, reads, reaping, service, settling
from app.queue.types import Item, Lease
from app.settings import Settings
from app.states import BatchState
from app.tenants.service import Tenant
from tests.queue import support

MODEL = "smollm2-135m-instruct"


class Scene:
    """One tenant, one pool, one worker."""

    def __init__(self, database: Database, settings: Settings, tenant: int, pool: int, worker: int) -> None:
        self.database, self.settings, self.pool, self.worker = database, settings, pool, worker
        self.tenant = Tenant(tenant, "acme")

    async def submit(self, items: int = 40, **how: int) -> ingest.NewBatch:
        batch = await support.submit(self.database, self.tenant.tenant_id, self.pool, items, **how)
        await self.sql("update batch set model = %s", MODEL)
        return batch

    async def claim(self) -> Lease | None:
        async with self.database.relaxed() as conn:
            return await support.claim(conn, self.pool, self.worker)

    async def claimed(self) -> Lease:
        lease = await self.claim()
        assert lease is not None
        return lease

    async def change_state(self, batch: ingest.NewBatch, verb: lifecycle.Verb) -> None:
        await lifecycle.change_state(self.database, self.tenant, batch.request_id, verb)

    async def retry(self, batch: ingest.NewBatch, of_run: int | None = None) -> int:
        models = catalogue.load(self.settings.models_file)
        return await lifecycle.retry(self.database, self.settings, models, self.tenant, batch.request_id, of_run)

    async def beat(self) -> dict[int, BatchState]:
        """The states in the answer to the worker's heartbeat, by chunk."""
        async with self.database.relaxed() as conn:
            held = await support.beat(conn, self.worker, 30)
        assert held is not None
        return {lease.chunk_id: lease.batch for lease in held}

    async def round(self) -> list[settling.Settled]:
        """One round of the steward."""
        async with self.database.relaxed() as conn:
            await chunk_sweeps.promote(conn)
            await expiry.expire(conn)
            await chunk_sweeps.sweep(conn)
        async with self.database.transaction() as conn:
            return await lifecycle.settle(conn)

    async def status(self, batch: ingest.NewBatch) -> reads.BatchStatus:
        found = await reads.status(self.database, self.tenant.tenant_id, batch.request_id)
        assert found is not None
        return found

    async def sql(self, query: str, *parameters: object) -> list[tuple[object, ...]]:
        async with self.database.durable() as conn:
            cursor = await conn.execute(query.encode(), parameters)
            return await cursor.fetchall() if cursor.description else []

    async def events(self) -> list[object]:
        return [kind for (kind,) in await self.sql("select kind from event order by event_id")]

    async def finish(self, lease: Lease, answered: int | None = None, *, ok: bool = True) -> None:
        """Flush the first `answered` items (all: None), then end the lease."""
        async with self.database.durable() as conn:
            numbers = lease.seqs or range(lease.lo, lease.hi + 1)
            items = [Item(seq, MODEL, "", None, b"") for seq in numbers][:answered]
            assert await service.flush(conn, lease, support.answers(items, ok))
            assert await service.finish(conn, lease) is not None

    async def clean(self) -> None:
        """Whether the queue has nothing left of the batches."""
        assert await self.sql(support.CACHES) == [(0, 0)]
        assert await self.sql("select 1 from chunk union all select 1 from batch_delta") == []


@pytest.fixture
async def scene(database: Database, settings: Settings) -> Scene:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn, MODEL)
    return Scene(database, settings, tenant, pool, await support.make_worker(database, pool))


async def test_a_queued_batch_is_cancelled_at_once(scene: Scene) -> None:
    batch = await scene.submit()
    await scene.change_state(batch, "cancel")
    status = await scene.status(batch)
    assert (status.state, status.ok, status.failed, status.unfinished) == (BatchState.CANCELLED, 0, 0, 40)
    assert await scene.claim() is None
    assert await scene.events() == ["batch.cancelled"]
    await scene.clean()


async def test_cancel_keeps_what_is_done_and_tells_the_worker_of_what_runs(scene: Scene) -> None:
    batch = await scene.submit()
    await scene.finish(await scene.claimed())
    running = await scene.claimed()
    await scene.change_state(batch, "cancel")
    assert (await scene.status(batch)).state == BatchState.CANCELLING
    assert await scene.beat() == {running.chunk_id: BatchState.CANCELLING}
    assert await scene.round() == []
    await scene.finish(running, answered=3)
    [settled] = await scene.round()
    assert (settled.state, settled.ok, settled.total) == (BatchState.CANCELLED, 19, 40)
    pages = [page async for page in reads.results(scene.database, batch.batch_id, 1)]
    assert sum(item.ok for page in pages for item in page) == 19
    await scene.clean()


async def test_a_cancelled_batch_whose_worker_is_lost_ends_too(scene: Scene) -> None:
    batch = await scene.submit()
    await scene.claimed()
    await scene.change_state(batch, "cancel")
    await scene.sql("update worker set lease_until = now() - interval '1 s'")
    async with scene.database.durable() as conn:
        assert await reaping.reap(conn) == (1, 1)
    [settled] = await scene.round()
    assert settled.state == BatchState.CANCELLED
    await scene.clean()


async def test_results_stored_before_a_worker_was_lost_count_after_a_cancel(scene: Scene) -> None:
    batch = await scene.submit(4)
    lease = await scene.claimed()
    async with scene.database.durable() as conn:
        assert await service.flush(conn, lease, support.answers(await service.load(conn, lease))[:2])
        await scene.sql("update worker set lease_until = now() - interval '1 s'")
        await reaping.reap(conn)
    await scene.change_state(batch, "cancel")
    [settled] = await scene.round()
    assert (settled.state, settled.ok, settled.completion_tokens) == (BatchState.CANCELLED, 2, 10)
    assert await scene.retry(batch) == 2
    scene.worker = await support.make_worker(scene.database, scene.pool)
    await support.drain(scene.database, scene.pool, scene.worker)
    [settled] = await scene.round()
    assert (settled.state, settled.ok) == (BatchState.COMPLETED, 4)


async def test_a_lease_on_a_halted_batch_loads_nothing(scene: Scene) -> None:
    """As if a lost worker's chunk was leased again before the sweep reached it."""
    batch = await scene.submit(16)
    lease = await scene.claimed()
    await scene.change_state(batch, "pause")
    async with scene.database.durable() as conn:
        assert await service.load(conn, lease) == []
        assert await service.finish(conn, lease) is not None
    await scene.round()
    assert await scene.sql("select state, n from chunk") == [("held", 16)]


async def test_each_run_gets_as_much_time_as_the_one_before(scene: Scene) -> None:
    batch = await scene.submit(4)
    await scene.sql("update batch set expires_at = opened_at + interval '1 hour'")
    for _ in range(3):
        await scene.change_state(batch, "cancel")
        await scene.sql(
            "update batch set opened_at = opened_at - interval '2 days', expires_at = expires_at - interval '2 days'"
        )
        await scene.retry(batch)
    assert await scene.sql("select round(extract(epoch from expires_at - now()) / 60) from batch") == [(60,)]


async def test_a_repeated_retry_of_the_same_run_has_no_effect(scene: Scene) -> None:
    batch = await scene.submit(4)
    await scene.change_state(batch, "cancel")
    assert await scene.retry(batch, 1) == 4
    assert await scene.retry(batch, 1) == 0
    await scene.change_state(batch, "cancel")
    assert await scene.retry(batch, 1) == 0
    assert (await scene.status(batch)).run == 2
    with pytest.raises(Conflict, match="The batch is in run 2, not 7"):
        await scene.retry(batch, 7)


async def test_a_paused_batch_is_not_leased_and_continues_when_resumed(scene: Scene) -> None:
    paused, other = await scene.submit(), await scene.submit(16)
    running = await scene.claimed()
    assert running.batch_id == paused.batch_id
    await scene.change_state(paused, "pause")
    assert await scene.beat() == {running.chunk_id: BatchState.PAUSED}
    await scene.finish(running, answered=5)
    assert await scene.round() == []
    assert [lease.batch_id for lease in await support.drain(scene.database, scene.pool, scene.worker)] == [
        other.batch_id
    ]
    assert (await scene.status(paused)).state == BatchState.PAUSED
    assert len(await scene.round()) == 1
    await scene.change_state(paused, "resume")
    await support.drain(scene.database, scene.pool, scene.worker)
    [settled] = await scene.round()
    assert (settled.batch_id, settled.ok) == (paused.batch_id, 40)
    await scene.clean()


async def test_chunks_returned_to_a_resumed_batch_are_ready_again(scene: Scene) -> None:
    batch = await scene.submit(16)
    running = await scene.claimed()
    await scene.change_state(batch, "pause")
    await scene.finish(running, answered=5)
    await scene.round()
    assert await scene.sql("select state from chunk") == [("held",)]
    await scene.sql("update batch set state = 'open'")  # as if the sweep came in between
    await scene.round()
    assert len(await support.drain(scene.database, scene.pool, scene.worker)) == 1
    assert len(await scene.round()) == 1
    await scene.clean()


async def test_at_its_deadline_a_batch_expires_and_keeps_its_results(scene: Scene) -> None:
    batch = await scene.submit()
    await scene.finish(await scene.claimed(), answered=2)
    assert await scene.round() == []
    assert (await scene.status(batch)).state == BatchState.OPEN  # a default deadline does not expire a batch
    await scene.sql("update batch set expires_at = now() - interval '1 s'")
    [settled] = await scene.round()
    assert (settled.state, settled.ok, settled.failed, settled.total) == (BatchState.EXPIRED, 2, 0, 40)
    assert (await scene.status(batch)).unfinished == 38
    assert await scene.events() == ["batch.expired"]
    await scene.clean()


async def test_a_paused_batch_expires_too(scene: Scene) -> None:
    batch = await scene.submit()
    await scene.change_state(batch, "pause")
    await scene.sql("update batch set expires_at = now() - interval '1 s'")
    [settled] = await scene.round()
    assert settled.state == BatchState.EXPIRED
    await scene.clean()


async def test_a_batch_whose_last_items_finish_while_it_is_expiring_is_complete(scene: Scene) -> None:
    batch = await scene.submit(16)
    running = await scene.claimed()
    await scene.sql("update batch set expires_at = now() - interval '1 s'")
    assert await scene.round() == []
    assert (await scene.status(batch)).state == BatchState.EXPIRING
    await scene.finish(running)
    [settled] = await scene.round()
    assert (settled.state, settled.ok) == (BatchState.COMPLETED, 16)


async def test_retry_runs_exactly_what_has_no_answer(scene: Scene) -> None:
    batch = await scene.submit(48)
    await scene.finish(await scene.claimed())
    await scene.finish(await scene.claimed(), ok=False)
    await scene.change_state(batch, "cancel")
    assert len(await scene.round()) == 1
    status = await scene.status(batch)
    assert (status.state, status.ok, status.failed, status.unfinished) == (BatchState.CANCELLED, 16, 16, 16)
    assert await scene.retry(batch) == 32
    status = await scene.status(batch)
    assert (status.state, status.run, status.ok, status.failed) == (BatchState.OPEN, 2, 16, 0)
    leases = await support.drain(scene.database, scene.pool, scene.worker)
    assert [(lease.lo, lease.hi, lease.run) for lease in leases] == [(16, 47, 2)]
    [settled] = await scene.round()
    assert (settled.state, settled.run, settled.ok) == (BatchState.COMPLETED, 2, 48)
    pages = [page async for page in reads.results(scene.database, batch.batch_id, 2)]
    assert all(item.ok for page in pages for item in page)
    assert await scene.events() == ["batch.cancelled", "batch.queued", "batch.succeeded"]
    await scene.clean()


async def test_after_a_cancelled_retry_an_error_of_the_previous_run_is_not_a_result_of_this_one(scene: Scene) -> None:
    batch = await scene.submit(8)
    await scene.finish(await scene.claimed(), ok=False)
    [failed] = await scene.round()
    assert failed.state == BatchState.FAILED
    assert await scene.retry(batch) == 8
    await scene.change_state(batch, "cancel")
    status = await scene.status(batch)
    assert (status.state, status.failed, status.unfinished) == (BatchState.CANCELLED, 0, 8)
    pages = [page async for page in reads.results(scene.database, batch.batch_id, status.run)]
    assert [item.body for page in pages for item in page] == [None] * 8


async def test_a_verb_that_the_state_forbids_is_a_conflict_and_a_repeated_one_is_not(scene: Scene) -> None:
    batch = await scene.submit(4)
    with pytest.raises(NotFound):
        await lifecycle.change_state(scene.database, scene.tenant, uuid.uuid4(), "cancel")
    with pytest.raises(NotFound):
        await lifecycle.change_state(scene.database, Tenant(99, "x"), batch.request_id, "cancel")
    with pytest.raises(Conflict, match="The batch is open: cancel it or wait"):
        await scene.retry(batch)
    await scene.change_state(batch, "resume")
    for _ in range(2):
        await scene.change_state(batch, "pause")
    for _ in range(2):
        await scene.change_state(batch, "cancel")
    assert await scene.events() == ["batch.cancelled"]
    with pytest.raises(Conflict, match="The batch is cancelled: only one that is open can be paused"):
        await scene.change_state(batch, "pause")
    await scene.retry(batch)
    await scene.finish(await scene.claimed())
    await scene.round()
    with pytest.raises(Conflict, match="The batch is completed: only one that is open or paused can be cancelled"):
        await scene.change_state(batch, "cancel")
    with pytest.raises(Conflict, match="Every item was answered"):
        await scene.retry(batch)
