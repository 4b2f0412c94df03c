"""Claims about the history of batches: what they waited for, of what their items failed, and when each item ran."""

import uuid
from collections.abc import Sequence

import pytest

from app.batches import phases as phase_log
from app.batches.phases import PhaseLog
from app.changes import service as changes
from app.changes.kinds import ChangeKind
from app.db.pool import Connection, Database
from app.queue import batch_state, chunk_sweeps, failures, ingest, phases, reaping, retention_sql, service, settling
from app.queue.types import Item, Lease, Result
from app.sealing.keyring import Keyring
from app.settings import Settings
from testing.waiting import eventually
from tests.maintenance.support import work
from tests.queue import support
from workers.maintenance import duties
from workers.steward.rounds import Rounds


@pytest.fixture
async def queue(database: Database) -> tuple[int, int, int]:
    """A tenant, a pool and a worker."""
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    return tenant, pool, await support.make_worker(database, pool)


async def codes(conn: Connection, batch: ingest.NewBatch) -> list[tuple[str, bool]]:
    """The phases of a batch: the code of each, and whether it has ended."""
    return [(phase.code, phase.until is not None) for phase in await phases.of_batch(conn, batch.batch_id)]


async def claimed(database: Database, queue: tuple[int, int, int]) -> tuple[Lease, list[Item]]:
    _, pool, worker = queue
    async with database.relaxed() as conn:
        lease = await support.claim(conn, pool, worker)
        assert lease is not None
        return lease, await service.load(conn, lease)


async def finished(database: Database, lease: Lease, results: Sequence[Result]) -> None:
    async with database.durable() as conn:
        assert await service.flush(conn, lease, results, engine_id=7)
        assert await service.finish(conn, lease)


def failed(items: Sequence[Item], error: str | None) -> list[Result]:
    return [result._replace(error=error) for result in support.answers(items, ok=False)]


async def test_a_phase_begins_when_the_reason_changes_and_the_last_one_ends_with_the_batch(
    database: Database, queue: tuple[int, int, int]
) -> None:
    tenant, pool, _ = queue
    batch = await support.submit(database, tenant, pool, 4)
    log = PhaseLog(database)
    assert await log.look() == 1
    assert await log.look() == 0
    async with database.durable() as conn:
        assert await codes(conn, batch) == [("no_engine", False)]
        async with conn.transaction():
            await batch_state.transition(conn, "pause", tenant, batch.request_id)
        assert await log.look() == 1
        async with conn.transaction():
            await batch_state.transition(conn, "cancel", tenant, batch.request_id)
            ended = await settling.finalise(conn, [batch.batch_id])
        assert [each.batch_id for each in ended] == [batch.batch_id]
        assert await codes(conn, batch) == [("no_engine", True), ("paused", True)]
    assert await log.look() == 0


async def test_a_look_takes_at_most_256_batches_and_the_next_ones_follow(
    database: Database, queue: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phase_log, "MOST_BATCHES", 2)
    tenant, pool, _ = queue
    for _ in range(5):
        await support.submit(database, tenant, pool, 1)
    log = PhaseLog(database)
    assert [await log.look() for _ in range(4)] == [2, 2, 1, 0]


async def test_of_many_phases_only_the_latest_are_kept(
    database: Database, queue: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "KEPT", 3)
    tenant, pool, _ = queue
    batch = await support.submit(database, tenant, pool, 1)
    for number in range(6):
        async with database.transaction() as conn:
            assert await phases.note(conn, {batch.batch_id: f"code_{number}"}) == 1
    async with database.durable() as conn:
        assert await codes(conn, batch) == [("code_3", True), ("code_4", True), ("code_5", False)]


async def test_failures_are_counted_by_class_and_each_class_shows_one_message(
    database: Database, queue: tuple[int, int, int], settings: Settings
) -> None:
    tenant, pool, _ = queue
    batch = await support.submit(database, tenant, pool, 8, max_items=4)
    for error in ("invalid", None):
        lease, items = await claimed(database, queue)
        bodies = [result._replace(body=b'{"code": 5006, "message": "no"}') for result in failed(items[:3], error)]
        await finished(database, lease, [*bodies, *support.answers(items[3:])])
    await support.settle(database)
    async with database.durable() as conn:
        found = await failures.by_class(conn, Keyring.of(settings), batch.batch_id, 1)
    assert [(each.error, each.count, each.seq, each.message) for each in found] == [
        ("failed", 3, None, None),
        ("invalid", 3, 0, "no"),
    ]


async def test_failures_of_a_cancelled_batch_are_counted_too(
    database: Database, queue: tuple[int, int, int], settings: Settings
) -> None:
    tenant, pool, worker = queue
    batch = await support.submit(database, tenant, pool, 4, max_items=4)
    lease, items = await claimed(database, queue)
    async with database.durable() as conn:
        assert await service.flush(conn, lease, failed(items[:2], "timeout"))
        async with conn.transaction():
            await batch_state.transition(conn, "cancel", tenant, batch.request_id)
        await conn.execute("update worker set lease_until = now() - interval '1 minute' where worker_id = %s", [worker])
        await reap_and_sweep(conn)
    await support.settle(database)
    async with database.durable() as conn:
        found = await failures.by_class(conn, Keyring.of(settings), batch.batch_id, 1)
    assert [(each.error, each.count) for each in found] == [("timeout", 2)]


async def reap_and_sweep(conn: Connection) -> None:
    assert await reaping.reap(conn) == (1, 1)
    await chunk_sweeps.sweep(conn)


async def test_a_result_has_its_engine_and_its_times(database: Database, queue: tuple[int, int, int]) -> None:
    tenant, pool, _ = queue
    await support.submit(database, tenant, pool, 2)
    lease, items = await claimed(database, queue)
    assert all(item.waited_seconds is not None and item.waited_seconds >= 0 for item in items)
    first, second = support.answers(items)
    timed = first._replace(queued_ms=4e12, first_token_ms=41.6, duration_ms=812.4)
    await finished(database, lease, [timed, second])
    async with database.durable() as conn:
        columns = "engine_id, queued_ms, first_token_ms, ran_ms, error"
        rows = await (await conn.execute(f"select {columns} from item_result order by seq".encode())).fetchall()
    assert rows == [(7, 2**31 - 1, 42, 812, None), (7, None, None, None, None)]


async def test_the_history_of_a_batch_goes_with_it(database: Database, queue: tuple[int, int, int]) -> None:
    tenant, pool, _ = queue
    batch = await support.submit(database, tenant, pool, 2)
    await PhaseLog(database).look()
    lease, items = await claimed(database, queue)
    await finished(database, lease, failed(items, "invalid"))
    await support.settle(database)
    async with database.transaction() as conn:
        for statement in retention_sql.FORGET:
            await conn.execute(statement, {"ids": [batch.batch_id]})
        for table in ("batch_phase", "batch_error"):
            assert await (await conn.execute(f"select from {table}".encode())).fetchall() == []


async def test_the_steward_notes_its_lead_and_phases_and_a_duty_keeps_the_history_within_bounds(
    database: Database, queue: tuple[int, int, int], settings: Settings
) -> None:
    tenant, pool, _ = queue
    batch = await support.submit(database, tenant, pool, 1)
    rounds = Rounds(database, NoHints(), settings)  # type: ignore[arg-type]
    await rounds.begin()
    async with database.durable() as conn:
        await changes.record(conn, ChangeKind.PART_STARTED, "old", {})
        await conn.execute("update change set at = now() - interval '40 days' where subject = 'old'")
        await duties.history(work(database, settings))
        async with rounds.watching():
            await eventually(lambda: codes(conn, batch))
        assert await codes(conn, batch) == [("no_engine", False)]
        assert [each.kind for each in await changes.page(conn, limit=10)] == ["steward.leads"]


class NoHints:
    """A publisher without a broker."""

    async def endpoints(self, endpoint_ids: list[uuid.UUID]) -> bool:
        return not endpoint_ids
