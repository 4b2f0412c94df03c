"""The slack of a pool: the smallest share of its window that a batch near its deadline has left."""

import pytest

from app.db.pool import Connection, Database
from app.queue import ingest, pool_status, service
from app.queue.types import Result
from tests.queue import support

HOUR = 3600.0


class Pool:
    """A pool whose pace and whose batches' windows are set by hand."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def create(self) -> "Pool":
        async with self.database.durable() as conn:
            self.tenant, self.pool = await support.make_tenant(conn), await support.make_pool(conn)
        return self

    async def pace(self, tokens_per_second: float) -> None:
        """Insert a note of the pool's pace."""
        async with self.database.durable() as conn:
            await conn.execute("insert into pace values (%s, now(), 0, %s)", (self.pool, tokens_per_second))

    async def batch(
        self, tokens: int, *, window: float, left: float | None, items: int = 10, pool: int | None = None
    ) -> ingest.NewBatch:
        """A batch of so many tokens, opened so that `left` of its window's seconds remain. None: it never expires."""
        async with self.database.transaction() as conn:
            batch = await support.new_batch(
                conn, self.tenant, pool or self.pool, items, deadline_seconds=window, expires=left is not None
            )
            await support.put(conn, batch, [tokens // items] * items)
            passed = window - (left if left is not None else window)
            await shift(conn, batch, passed)
        return batch

    async def slack(self) -> float | None:
        async with self.database.relaxed() as conn:
            await pool_status.write(conn)
            row = await (
                await conn.execute("select slack from pool_status where pool_id = %s", (self.pool,))
            ).fetchone()
            assert row is not None
            return None if row[0] is None else float(row[0])


async def shift(conn: Connection, batch: ingest.NewBatch, passed: float) -> None:
    """As if the batch had been opened so many seconds earlier."""
    await conn.execute(
        """update batch set opened_at = opened_at - make_interval(secs => %s), expires_at = expires_at - make_interval(secs => %s)
           where batch_id = %s""",
        (passed, passed, batch.batch_id),
    )


@pytest.fixture
async def pool(database: Database) -> Pool:
    return await Pool(database).create()


async def test_a_pool_without_a_deadline_has_no_slack(pool: Pool) -> None:
    await pool.pace(100)
    assert await pool.slack() is None
    await pool.batch(1000, window=HOUR, left=None)
    assert await pool.slack() is None


async def test_slack_is_the_share_of_the_window_left_after_the_remaining_work_at_the_present_pace(pool: Pool) -> None:
    await pool.pace(100)
    await pool.batch(36_000, window=HOUR, left=HOUR)  # 360 s of work
    assert await pool.slack() == pytest.approx(0.9, abs=0.01)
    await pool.batch(36_000, window=HOUR, left=720)
    assert await pool.slack() == pytest.approx(0.1, abs=0.01)


async def test_a_batch_that_will_be_late_has_negative_slack(pool: Pool) -> None:
    await pool.pace(10)
    await pool.batch(72_000, window=HOUR, left=HOUR)
    assert await pool.slack() == pytest.approx(-1, abs=0.01)


async def test_the_batch_with_the_least_slack_decides_whether_or_not_it_is_due_first(pool: Pool) -> None:
    await pool.pace(100)
    await pool.batch(1000, window=HOUR, left=HOUR / 2)
    await pool.batch(320_000, window=HOUR, left=HOUR)
    assert await pool.slack() == pytest.approx(1 / 9, abs=0.01)


async def test_only_remaining_work_counts_and_a_batch_without_any_is_ignored(pool: Pool) -> None:
    await pool.pace(10)
    await pool.batch(12_000, window=HOUR, left=2400)  # 1200 s of work in one chunk
    assert await pool.slack() == pytest.approx(1200 / HOUR, abs=0.01)
    worker = await support.make_worker(pool.database, pool.pool)
    async with pool.database.durable() as conn:
        lease = await support.claim(conn, pool.pool, worker)
        assert lease is not None
        items = await service.load(conn, lease)
        assert await service.flush(conn, lease, support.answers(items[:5]))
    assert await pool.slack() == pytest.approx((2400 - 600) / HOUR, abs=0.01)
    async with pool.database.durable() as conn:
        failed = [Result(item.seq, False, 1, 3, 1, 5, b"{}") for item in items[5:]]
        assert await service.flush(conn, lease, failed)
    assert await pool.slack() is None


async def test_work_and_pace_of_other_pools_do_not_count(pool: Pool) -> None:
    async with pool.database.durable() as conn:
        other = await support.make_pool(conn, "other")
        await conn.execute(
            "insert into pace select %s, now() - make_interval(secs => 10 * k), 0, 1 from generate_series(0, 5) k",
            (other,),
        )
    await pool.pace(100)
    await pool.batch(10_000_000, window=HOUR, left=HOUR, pool=other)
    assert await pool.slack() is None
    await pool.batch(36_000, window=HOUR, left=HOUR)
    assert await pool.slack() == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize("state", ["paused", "cancelling", "expiring"])
async def test_a_batch_that_is_not_open_does_not_count(pool: Pool, state: str) -> None:
    await pool.pace(100)
    batch = await pool.batch(36_000, window=HOUR, left=HOUR)
    async with pool.database.durable() as conn:
        await conn.execute("update batch set state = %s where batch_id = %s", (state, batch.batch_id))
    assert await pool.slack() is None


async def test_a_pool_without_progress_counts_as_one_token_per_second(pool: Pool) -> None:
    await pool.pace(0)
    await pool.batch(1800, window=HOUR, left=HOUR)
    assert await pool.slack() == pytest.approx(0.5, abs=0.01)


async def test_without_a_known_pace_only_the_time_until_the_deadline_counts(pool: Pool) -> None:
    await pool.batch(36_000, window=HOUR, left=720)
    assert await pool.slack() == pytest.approx(0.2, abs=0.01)


async def test_earlier_deadlines_in_other_pools_do_not_hide_ours(pool: Pool) -> None:
    await pool.pace(100)
    async with pool.database.durable() as conn:
        other = await support.make_pool(conn, "other")
    for _ in range(25):
        await pool.batch(1000, window=HOUR, left=600, pool=other)
    await pool.batch(36_000, window=HOUR, left=720)
    assert await pool.slack() == pytest.approx(0.1, abs=0.01)
