"""The cost of a batch in PostgreSQL: bytes of WAL, commits that wait for the disk, index updates. Counted, not timed."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from app.db.pool import Connection, Database
from app.queue import service, settling, worker_sql
from app.queue.types import Lease, Result
from app.settings import Settings
from testing.waiting import eventually
from tests import timing
from tests.db import commits
from tests.queue import support
from workers.gpu.open_chunk import OpenChunk
from workers.gpu.result_writer import ResultWriter

ITEMS, CHUNK = 6_400, 64
PADDING = b"x" * 1_000
ANSWER = b'{"text": "' + b"y" * 700 + b'"}'


@dataclass
class Load:
    """Runs a batch and reads PostgreSQL's counters."""

    database: Database
    tenant: int
    pool: int
    worker: int

    async def one(self, statement: str) -> tuple[int, ...]:
        async with self.database.durable() as conn:
            row = await (await conn.execute(statement)).fetchone()
        assert row
        return tuple(row)

    async def submit(self) -> int:
        """Returns the bytes of the bodies."""
        async with self.database.transaction() as conn:
            batch = await support.new_batch(conn, self.tenant, self.pool, ITEMS)
            await support.put(conn, batch, [100] * ITEMS, max_items=CHUNK, padding=PADDING)
        bodies = f"select sum(octet_length(body)) from item_payload where batch_id = {batch.batch_id}"
        return (await self.one(bodies))[0]

    async def claim(self, conn: Connection) -> Lease | None:
        return await support.claim(conn, self.pool, self.worker)

    async def written(self) -> tuple[int, int]:
        """Bytes of WAL so far, and full page images in it, of the whole server."""
        async with self.database.durable() as conn:
            await conn.execute("select pg_stat_force_next_flush()")
        written, pages = await self.one("select pg_current_wal_insert_lsn() - '0/0', wal_fpi from pg_stat_wal")
        return int(written), int(pages)

    async def updates(self, table: str) -> tuple[int, int]:
        """(all updates, HOT updates) so far, including those of this connection."""
        async with self.database.durable() as one, self.database.relaxed() as other:
            for conn in (one, other):  # the only connections
                await conn.execute("select pg_stat_force_next_flush()")
        row = await self.one(f"select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = '{table}'")
        return row[0], row[1]


def results(lease: Lease) -> list[Result]:
    times = {"first_token_ms": 41.2, "duration_ms": 812.7, "queued_ms": 90_000.0}
    return [Result(seq, True, 1, 3, 1, 5, ANSWER, **times) for seq in range(lease.lo, lease.hi + 1)]


FINISHES: dict[str, object] = {
    "backoff_seconds": 0.0,
    "suspects": [],
    "retried": [],
    "retry_seconds": 0.0,
    "split": False,
    "engine_ms": 800,
    "unrun": 0,
}
FINISHES |= {"first_tokens": b"x" * CHUNK, "durations": b"x" * CHUNK}


def fence(lease: Lease) -> dict[str, int]:
    names = ("chunk_id", "token", "worker_id", "batch_id", "run")
    return {name: getattr(lease, name) for name in names}


@pytest.fixture
async def load(settings: Settings) -> AsyncIterator[Load]:
    """Pools of one connection each, so that the counts of a connection can be read."""
    async with Database(settings.database_url, size=2) as database:
        async with database.durable() as conn:
            tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
        yield Load(database, tenant, pool, await support.make_worker(database, pool))


async def test_an_item_costs_at_most_500_bytes_of_wal_besides_its_bodies(load: Load) -> None:
    """From submit to the end of the batch, in chunks of 64 items with one flush each. The least of three at most: after a
    checkpoint of the server's own in between, each page is written whole once more.
    """
    await load.one("select 1")
    runs = [await run_from_a_checkpoint(load)]
    while runs[-1] > 500 and len(runs) < 3:
        runs.append(await run_from_a_checkpoint(load))
    assert min(runs) <= 500


async def run_from_a_checkpoint(load: Load) -> float:
    """Bytes of WAL per item of a batch besides its bodies."""
    async with load.database.durable() as conn:
        await conn.execute("checkpoint")
        [full_pages] = await (await conn.execute("show full_page_writes")).fetchone() or ("?",)
    begin = await load.written()
    bodies = await load.submit() + ITEMS * len(ANSWER)
    submitted = await load.written()
    await run_all(load)
    end = await load.written()
    batch = "select ok, (state = 'completed')::int from batch order by batch_id desc limit 1"
    assert await load.one(batch) == (ITEMS, 1)
    beyond = (end[0] - begin[0] - bodies) / ITEMS
    timing.note(
        f"WAL per item beside {bodies / ITEMS:.0f} bytes of bodies: {beyond:.0f} bytes, of which "
        f"{(submitted[0] - begin[0] - bodies + ITEMS * len(ANSWER)) / ITEMS:.0f} at submit; all of the server's WAL since a "
        f"checkpoint, with {end[1] - begin[1]} full pages (full_page_writes {full_pages})"
    )
    return beyond


async def test_an_item_and_its_result_take_at_most_450_bytes_of_disk_besides_their_bodies(load: Load) -> None:
    """Tables and indexes, from submit to the end of the batch, in chunks of 64 items."""
    size = "select sum(pg_total_relation_size(oid)) from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace"
    await load.submit()  # a table's first pages
    await run_all(load)
    [before] = await load.one(size)
    bodies = await load.submit() + ITEMS * len(ANSWER)
    await run_all(load)
    [after] = await load.one(size)
    beyond = (after - before - bodies) / ITEMS
    timing.note(f"disk per item beside {bodies / ITEMS:.0f} bytes of bodies: {beyond:.0f} bytes")
    assert 0 < beyond <= 450


async def run_all(load: Load) -> None:
    """Run the batch to its end."""
    while True:
        async with load.database.relaxed() as relaxed:
            lease = await load.claim(relaxed)
        if lease is None:
            break
        async with load.database.durable() as durable:
            assert await service.flush(durable, lease, results(lease), engine_id=1)
        async with load.database.relaxed() as relaxed:
            assert await service.finish(relaxed, lease)
            await support.beat(relaxed, load.worker, 30)
        if lease.lo % (10 * CHUNK) == 0:
            await support.settle(load.database)
    await support.settle(load.database)


@pytest.mark.parametrize("failed", [0, 8])
async def test_a_finish_writes_four_records_of_700_bytes_at_most(load: Load, failed: int) -> None:
    """The least of five: the first rows of a page cost more."""
    await load.submit()
    explain = "explain (analyze, wal, buffers, format json) " + worker_sql.FINISH
    plans = []
    async with load.database.relaxed() as conn:
        for _ in range(5):
            lease = await load.claim(conn)
            assert lease is not None
            rows = results(lease)
            rows[:failed] = [result._replace(ok=False, error="invalid") for result in rows[:failed]]
            assert await service.flush(conn, lease, rows, engine_id=1)
            [plan] = await (await conn.execute(explain.encode(), FINISHES | fence(lease))).fetchone() or ([],)
            plans.append(plan[0]["Plan"])
    records, size, pages = (
        min(plan[name] for plan in plans) for name in ("WAL Records", "WAL Bytes", "Shared Hit Blocks")
    )
    timing.note(
        f"a finish of {CHUNK} items, {failed} of them failed: {records} WAL records, {size} bytes, {pages} pages"
    )
    assert records <= 4
    assert size <= 700
    assert pages <= 300


class Counted(Database):
    """Counts the uses of each kind of connection."""

    def __init__(self, url: str) -> None:
        super().__init__(url, size=2)
        self.asked: Counter[str] = Counter()

    @asynccontextmanager
    async def durable(self) -> AsyncIterator[Connection]:
        self.asked["durable"] += 1
        async with super().durable() as conn:
            yield conn

    @asynccontextmanager
    async def relaxed(self) -> AsyncIterator[Connection]:
        self.asked["relaxed"] += 1
        async with super().relaxed() as conn:
            yield conn


async def test_storing_a_chunk_waits_for_the_disk_once_per_flush(load: Load, settings: Settings) -> None:
    """The worker's own result writer stores 10 chunks of 64 items. Each use of a connection is one statement, so one commit."""
    async with Counted(settings.database_url) as database:
        async with load.database.transaction() as conn:
            batch = await support.new_batch(conn, load.tenant, load.pool, 640)
            await support.put(conn, batch, [100] * 640, max_items=CHUNK)
        chunks: dict[int, OpenChunk] = {}
        async with load.database.relaxed() as conn:
            while lease := await load.claim(conn):
                chunks[lease.chunk_id] = OpenChunk(lease, [])
                chunks[lease.chunk_id].results += results(lease)
        async with load.database.durable() as conn:
            await commits.watch(conn, "item_result")
            await commits.watch(conn, "chunk", "delete")
        storer = ResultWriter(settings, database, chunks)
        task = asyncio.create_task(storer.run())
        storer.hurry()
        await eventually(lambda: not chunks)
        task.cancel()
        assert database.asked["durable"] <= 10
        assert database.asked["durable"] + database.asked["relaxed"] <= 20
        async with database.relaxed() as conn:
            assert await commits.seen(conn) == {("INSERT item_result", "on"), ("DELETE chunk", "off")}
    [settled] = await support.settle(load.database)
    assert settled.ok == 640


async def test_updates_of_heartbeats_progress_shares_and_counts_write_no_index(load: Load) -> None:
    """At least nine of ten updates are HOT, since the tables' fillfactor leaves room."""
    await load.submit()
    shares: dict[str, tuple[int, int]] = {}
    flushed = [0, 0]
    while True:
        async with load.database.relaxed() as conn:
            lease = await load.claim(conn)
        if lease is None:
            break
        before = await load.updates("chunk")
        async with load.database.durable() as conn:
            rows = results(lease)
            for part in range(0, CHUNK, 16):
                assert await service.flush(conn, lease, rows[part : part + 16])
        after = await load.updates("chunk")
        flushed = [flushed[i] + after[i] - before[i] for i in (0, 1)]
        async with load.database.relaxed() as conn:
            await service.finish(conn, lease)
            await support.beat(conn, load.worker, 30)
        async with load.database.transaction() as conn:
            await settling.settle(conn)
    shares = {table: await load.updates(table) for table in ("worker", "sched", "batch")}
    shares["chunk, by flushes"] = (flushed[0], flushed[1])
    timing.note(
        "updates that touch no index: " + ", ".join(f"{name} {hot} of {n}" for name, (n, hot) in shares.items())
    )
    assert {name: (n, hot) for name, (n, hot) in shares.items() if n < 50 or hot < 0.9 * n} == {}
