"""The steward's log lines about batches."""

import uuid
from typing import Any

import structlog

from app.db.pool import Database
from app.engines.service import ensure_pool
from app.queue import service
from app.queue.running_batches import BatchProgress
from app.queue.settling import Settled
from app.queue.types import Kind
from app.settings import Settings
from app.states import BatchState
from tests.queue import support
from workers.steward import batch_log
from workers.steward.batch_log import BatchLog
from workers.steward.rounds import Rounds

NAME = uuid.UUID("47fe1748-574b-456a-82f0-5333eec2a683")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def progress(
    done: int, *, total: int = 1000, batch_id: int = 1, run: int = 1, kind: Kind = Kind.BATCH
) -> BatchProgress:
    return BatchProgress(batch_id, run, NAME, "m", total, done, 0, kind)


def settled(ok: int, *, total: int = 1000, seconds: float = 100.0) -> Settled:
    return Settled(1, NAME, 1, "a", "m", 1, BatchState.COMPLETED, total, ok, 0, 9, 9, None, Kind.BATCH, seconds)


def test_a_batch_is_logged_once_at_its_start_at_each_tenth_and_at_its_end() -> None:
    clock = Clock()
    log, told = BatchLog(clock), list[tuple[str, dict[str, Any]]]()
    told += log.running([progress(0)])
    told += log.running([progress(0)])
    for done in range(20, 1000, 20):
        clock.now += 1
        told += log.moved([progress(done)])
        told += log.running([progress(done)])
    clock.now += 1
    told += log.moved([progress(1000)])
    told += log.ended([settled(1000)])
    assert [name for name, _ in told] == ["batch.started", *["batch.progress"] * 9, "batch.completed"]
    assert [facts["percent"] for name, facts in told if name == "batch.progress"] == [*range(10, 100, 10)]
    assert {facts["items_per_second"] for _, facts in told[1:]} == {20.0}
    assert {facts["request_id"] for _, facts in told} == {str(NAME)}


def test_tenths_that_pass_together_are_logged_as_one() -> None:
    log = BatchLog(Clock())
    assert [facts.get("percent") for _, facts in log.moved([progress(470)])] == [None, 47]
    assert list(log.moved([progress(499)])) == []


def test_the_logged_pace_counts_from_the_first_round_and_is_left_out_if_the_start_was_not_seen() -> None:
    clock = Clock()
    log = BatchLog(clock)
    list(log.running([progress(400)]))
    clock.now = 10.0
    [(_, facts)] = log.moved([progress(500)])
    assert facts["items_per_second"] == 10.0
    [(_, unseen)] = BatchLog(clock).ended([settled(1000, seconds=50.0)])
    assert "items_per_second" not in unseen  # its seconds include the time in the queue
    assert unseen["seconds"] == 50.0
    log = BatchLog(clock)
    list(log.moved([progress(1000)]))
    [(_, ended)] = log.ended([settled(1000, seconds=50.0)])
    assert "items_per_second" not in ended


def test_the_next_run_of_a_batch_is_logged_again_and_single_requests_only_at_their_end() -> None:
    log = BatchLog(Clock())
    assert len(list(log.running([progress(0), progress(0, run=2)]))) == 2
    assert list(log.running([progress(0, batch_id=2, kind=Kind.FLEX)])) == []
    assert list(log.moved([progress(1, total=1, batch_id=2, kind=Kind.RESPONSE)])) == []


def test_the_log_remembers_a_bounded_number_of_batches(monkeypatch: Any) -> None:
    monkeypatch.setattr(batch_log, "MOST", 3)
    log = BatchLog(Clock())
    assert len(list(log.running([progress(0, batch_id=n) for n in range(9)]))) == 9
    assert len(log._seen) == 3


class NoHints:
    """A publisher without a broker."""

    async def endpoints(self, endpoint_ids: list[uuid.UUID]) -> bool:
        """Publishes nothing."""
        return not endpoint_ids


async def test_the_steward_logs_a_batch_from_its_first_lease_to_its_end(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await ensure_pool(conn, "toy")
        worker = await service.register_worker(conn, pool_id=pool, host="h", pid=1, lease_seconds=60)
    batch = await support.submit(database, tenant, pool, 40, max_items=10)
    rounds = Rounds(database, NoHints(), settings)  # type: ignore[arg-type]
    with structlog.testing.capture_logs() as told:
        await rounds.run()
        assert [line for line in told if line["event"].startswith("batch.")] == []
        for chunk in range(4):
            async with database.relaxed() as conn:
                lease = await support.claim(conn, pool, worker)
            assert lease is not None
            if not chunk:
                await rounds._write_progress()
            await support.run_chunk(database, lease)
            await rounds._settle()
    said = [(line["event"], line["request_id"], line.get("percent")) for line in told if "request_id" in line]
    name = str(batch.request_id)
    assert said == [
        ("batch.started", name, None),
        *(("batch.progress", name, percent) for percent in (25, 50, 75)),
        ("batch.completed", name, None),
    ]


async def test_the_stewards_page_counts_how_batches_end_and_whether_they_had_a_deadline(
    database: Database, settings: Settings
) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await ensure_pool(conn, "toy")
        worker = await service.register_worker(conn, pool_id=pool, host="h", pid=1, lease_seconds=60)
    rounds = Rounds(database, NoHints(), settings)  # type: ignore[arg-type]
    for expires in (True, False, False):
        async with database.transaction() as conn:
            batch = await support.new_batch(conn, tenant, pool, 4, expires=expires)
            await support.put(conn, batch, [100] * 4)
        await support.drain(database, pool, worker)
        await rounds.run()
    page = rounds.metrics.exposition().decode()
    assert 'batches_ended_total{deadline="yes",state="completed"} 1.0' in page
    assert 'batches_ended_total{deadline="no",state="completed"} 2.0' in page
    assert 'batches_ended_total{deadline="yes",state="expired"} 0.0' in page
    assert "slackwater_steward_round_seconds_count 3.0" in page
    assert "slackwater_steward_leading 0.0" in page
