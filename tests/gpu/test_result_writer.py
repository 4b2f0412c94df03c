"""Claims about storing results: bounded statements, answers too large, and one chunk's trouble that is not the others'."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import orjson
import pytest

from app.db.pool import Connection, Database
from app.engines.client import EngineClient
from app.engines.requests import Target
from app.queue import service as queue
from app.queue.types import Fence, Lease, Result
from app.settings import Settings
from testing.waiting import eventually, in_time
from tests.clock import Clock
from tests.gpu.test_puller import ITEMS, LEASE
from tests.queue import support
from workers.gpu.body_store import BodyStore
from workers.gpu.item_runner import ItemRunner
from workers.gpu.open_chunk import OpenChunk
from workers.gpu.puller import Puller
from workers.gpu.result_writer import ResultWriter
from workers.gpu.tuning import TUNING, WorkerTuning

MB = 2**20
TOO_MANY = 10**12  # tokens, as an engine may say that is out of its mind; no column takes it


@dataclass
class Bench:
    """A worker's chunks, and what the database has of them."""

    settings: Settings
    database: Database
    chunks: dict[int, OpenChunk]

    async def claim(self, sizes: Sequence[int], *, retries: int = 0) -> list[Result]:
        """A chunk of one batch in hand, whose answers of so many bytes are there."""
        async with self.database.durable() as conn:
            tenant = await support.make_tenant(conn, f"a{len(self.chunks)}")
            pool = await support.make_pool(conn, f"m{len(self.chunks)}")
        await support.submit(self.database, tenant, pool, len(sizes), max_items=100)
        worker = await support.make_worker(self.database, pool, 3600)
        async with self.database.durable() as conn:
            await conn.execute("update chunk set retries = %s where pool_id = %s", [retries, pool])
            lease = await support.claim(conn, pool, worker)
        assert lease is not None
        chunk = self.chunks[lease.chunk_id] = OpenChunk.of(lease, [], self.settings.item_attempts)
        chunk.results = [Result(seq, True, 1, 3, 1, 5, b"x" * size) for seq, size in enumerate(sizes)]
        return chunk.results

    @asynccontextmanager
    async def storing(self, tuning: WorkerTuning = TUNING, **changes: Any) -> AsyncIterator[ResultWriter]:
        """While the flush loop runs."""
        made = ResultWriter(self.settings.model_copy(update=changes), self.database, self.chunks, tuning)
        made.hurry()
        running = asyncio.create_task(made.run())
        try:
            async with in_time():
                yield made
            assert not running.done()
        finally:
            running.cancel()

    async def until_empty(self) -> None:
        await eventually(lambda: not self.chunks)

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        async with self.database.relaxed() as conn:
            return await (await conn.execute(sql.encode())).fetchall()


@pytest.fixture
def bench(settings: Settings, database: Database) -> Bench:
    return Bench(settings, database, {})


async def test_an_answer_too_large_for_a_row_is_its_items_error_with_both_sizes_and_its_neighbours_are_stored(
    bench: Bench,
) -> None:
    await bench.claim([10, 2 * MB, 10])
    async with bench.storing(answer_mb=1):
        await bench.until_empty()
    found = await bench.rows("select ok, body from item_result order by seq")
    assert [ok for ok, _ in found] == [1, 0, 1]
    error = orjson.loads(found[1][1])
    assert error["code"] == 5001
    assert "2.0 MB" in error["message"]
    assert "the 1 MB of SLACKWATER_ANSWER_MB" in error["message"]


async def test_where_there_is_an_object_store_such_an_answer_goes_there(bench: Bench) -> None:
    await bench.claim([10, 2 * MB])
    async with bench.storing(answer_mb=1, object_kb=100):
        await bench.until_empty()
    assert await bench.rows("select ok, stored from item_result order by seq") == [(1, False), (1, True)]


async def test_no_statement_has_more_bytes_than_its_bound_unless_it_is_one_result(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush, statements = queue.flush, list[list[int]]()

    async def noted(conn: Connection, lease: Lease, results: Sequence[Result], **options: Any) -> bool:
        statements.append([len(result.body) for result in results])
        return await flush(conn, lease, results, **options)

    monkeypatch.setattr(queue, "flush", noted)
    sizes = [MB // 2, MB // 4, MB // 2, 3 * MB, 10, 10, MB]
    await bench.claim(sizes)
    async with bench.storing(WorkerTuning(flush_bytes=MB)):
        await bench.until_empty()
    assert [size for sizes_of_one in statements for size in sizes_of_one] == sizes
    assert all(sum(of_one) <= MB or len(of_one) == 1 for of_one in statements)
    assert len(statements) < len(sizes)


async def test_what_the_database_refuses_of_one_chunk_blocks_no_other_chunk_and_is_run_again(bench: Bench) -> None:
    results = await bench.claim([10, 10, 10])
    results[1] = results[1]._replace(prompt_tokens=TOO_MANY)
    await bench.claim([10, 10])
    async with bench.storing():
        await bench.until_empty()
    assert await bench.rows("select count(*), sum(ok) from item_result") == [(4, 4)]
    assert await bench.rows("select lo, hi, retries, state from chunk") == [(1, 1, 1, "delayed")]


async def test_what_cannot_be_stored_a_second_time_is_the_items_error(bench: Bench) -> None:
    results = await bench.claim([10, 10, 10], retries=1)
    results[1] = results[1]._replace(prompt_tokens=TOO_MANY)
    async with bench.storing():
        await bench.until_empty()
    found = await bench.rows("select ok, body from item_result order by seq")
    assert [ok for ok, _ in found] == [1, 0, 1]
    assert "could not be stored" in orjson.loads(found[1][1])["message"]
    assert await bench.rows("select error from item_result where ok = 0") == [("not_stored",)]


async def test_a_chunk_whose_end_is_refused_is_dropped_and_the_loop_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = queue.finish
    await bench.claim([10])
    [(bad, _)] = bench.chunks.items()

    async def broken(conn: Connection, lease: Lease, **how: Any) -> Any:
        if lease.chunk_id == bad:
            raise RuntimeError("a fault of ours")
        return await finish(conn, lease, **how)

    monkeypatch.setattr(queue, "finish", broken)
    await bench.claim([10, 10])
    async with bench.storing():
        await bench.until_empty()
    assert await bench.rows("select count(*) from item_result") == [(3,)]
    assert await bench.rows("select chunk_id, state from chunk") == [(bad, "leased")]


@pytest.mark.parametrize("failures", [0, 1])
async def test_a_stray_lease_is_ended_and_its_items_go_back_to_the_queue_even_after_a_fault_of_ours(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """After a fault the lease is forgotten, and the next heartbeats list it again."""
    finish, left = queue.finish, [RuntimeError("a fault of ours")] * failures

    async def faulty(conn: Connection, lease: Lease | Fence, **how: Any) -> Any:
        if left:
            raise left.pop()
        return await finish(conn, lease, **how)

    monkeypatch.setattr(queue, "finish", faulty)
    await bench.claim([10, 10])
    [(_, chunk)] = bench.chunks.items()
    bench.chunks.clear()
    lease = chunk.lease
    stray = Fence(lease.chunk_id, lease.token, lease.worker_id, lease.batch_id, lease.run, lease.n)
    async with bench.storing() as writer:
        for _ in range(failures + 1):
            writer.end(stray)
            await eventually(lambda: not writer.unfinished)
    assert await bench.rows("select lo, hi, state from chunk") == [(0, 1, "delayed")]


async def test_results_are_stored_after_so_many_or_so_long_whichever_comes_first(
    settings: Settings, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunk = OpenChunk.of(LEASE, [], 4)
    chunk.pending.extend(ITEMS)  # it is not idle
    stored: list[int] = []

    async def store(writer: ResultWriter, chunk: OpenChunk) -> None:
        stored.append(len(chunk.results))
        chunk.results.clear()

    monkeypatch.setattr(ResultWriter, "_store", store)
    settings = settings.model_copy(update={"flush_items": 3, "flush_seconds": 1000})
    runner = ItemRunner(EngineClient("http://e", timeout_seconds=1), Target("m", 1, 100), b"", 1, cast(BodyStore, None))
    puller = Puller(settings, cast(Database, None), runner, lambda reason: None)
    puller._chunks[1] = chunk
    writing = asyncio.create_task(puller._writer.run())

    async def answered(n: int) -> list[int]:
        """What was stored by now, after so many more answers."""
        for seq in range(n):
            chunk.results.append(Result(seq, True, 1, 3, 1, 5, b"x"))
            puller._ended(chunk, seq)
        for _ in range(20):
            await asyncio.sleep(0)
        return stored

    assert await answered(2) == []
    assert await answered(1) == [3]
    assert await answered(1) == [3]
    clock.advance(500)
    assert await answered(0) == [3]
    clock.advance(501)
    assert await answered(0) == [3, 1]
    writing.cancel()
