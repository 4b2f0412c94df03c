"""What a chunk costs, locks and keeps in memory with three days and with a year of them."""

import asyncio
from statistics import median
from typing import Any

from app.db.day_tables import on_day
from app.db.pool import Connection, Database
from app.queue import partitions, reads, service, worker_sql
from app.queue.types import Item, Result
from benchmarks.harness import Testbed, open_testbed, say
from benchmarks.queue.order import enqueue
from benchmarks.scale.pgbench import claim, filled, folding, rate

FEW, YEAR = 3, 365
ITEMS = 16  # of a chunk
_ARRAY = "array(select {0} from generate_series(:lo::int, :hi::int) g)::{1}[]"
_BODY = "'\\x7b7d'::bytea"


def day_tables(*, chunks: int = 2500, times: int = 250, rounds: int = 5) -> dict[str, Any]:
    """Milliseconds of a claim, load, flush and finish, each time in new connections; the most locks that one of these statements
    takes when it is planned; memory of a connection that has run all of them and has read results.
    """
    with open_testbed("") as testbed:
        urls = {days: _database(testbed, days, chunks) for days in (FEW, YEAR)}
        scripts = {days: asyncio.run(_script(url)) for days, url in urls.items()}
        found: dict[int, list[float]] = {days: [] for days in urls}
        for _ in range(rounds):
            for days, url in urls.items():
                with folding(url):
                    found[days].append(1000 / rate(url, scripts[days], times=times))
        locks, memory = asyncio.run(_connection(urls[YEAR]))
    ms = {days: round(median(values), 3) for days, values in found.items()}
    say(f"day tables: {ms} ms a chunk, {locks} locks, {memory:.1f} MB")
    return {
        "chunk_ratio_365_days": round(ms[YEAR] / ms[FEW], 2),
        "chunk_ms_3_days": ms[FEW],
        "chunk_ms_365_days": ms[YEAR],
        "locks_per_chunk": locks,
        "mb_per_connection": round(memory, 1),
    }


def _database(testbed: Testbed, days: int, chunks: int) -> str:
    url = testbed.database()

    async def fill() -> None:
        async with Database(url, size=1) as database:
            for ahead in range(10, days, 10):  # a transaction locks all that it creates
                async with database.transaction() as conn:
                    await partitions.create(conn, ahead)
            async with database.transaction() as conn:
                await partitions.create(conn, days - 1)
            await enqueue(database, "bench", "toy", chunks * ITEMS, tokens=100, chunk=ITEMS)
            async with database.relaxed() as conn:
                await conn.execute("vacuum (analyze)")

    asyncio.run(fill())
    return url


async def _register(conn: Connection) -> tuple[int, int]:
    row = await (await conn.execute("select pool_id from pool")).fetchone()
    assert row
    worker = await service.register_worker(conn, pool_id=row[0], host="bench", pid=1, lease_seconds=86_400)
    return row[0], worker


async def _script(url: str) -> str:
    """A script that claims, loads, flushes and finishes a chunk, as a worker does."""
    async with Database(url, size=1) as database, database.durable() as conn:
        pool_id, worker_id = await _register(conn)
        row = await (await conn.execute("select batch_id from batch")).fetchone()
    assert row
    batch_id: int = row[0]
    values = {"chunk_id": ":chunk_id", "token": ":token", "worker_id": worker_id, "batch_id": f"{batch_id}::bigint"}
    values |= {"run": "1", "lo": ":lo", "hi": ":hi", "seqs": "null", "engine_id": "null", "split": "false"}
    values |= dict.fromkeys(("backoff_seconds", "retry_seconds", "engine_ms", "unrun"), "0")
    values |= dict.fromkeys(("suspects", "retried"), "'{}'") | dict.fromkeys(("first_tokens", "durations"), "''::bytea")
    own = {"seq": "g", "ok": "1", "body": _BODY, "stored": "false", "error": "null", "details": "null"}
    results = {name: _ARRAY.format(own.get(name, "1"), kind) for name, kind in worker_sql.RESULT_COLUMNS.items()}
    statements = (worker_sql.LOAD, worker_sql.FLUSH, worker_sql.FINISH)
    parts = [filled(on_day(statement, batch_id), results | values) + ";\n" for statement in statements]
    return claim(pool_id, worker_id) + "".join(parts)


async def _connection(url: str) -> tuple[int, float]:
    """The most locks of a statement; megabytes of a connection that runs all statements of a chunk and reads results."""
    async with Database(url, size=1) as database, database.relaxed() as conn:
        worker = await _register(conn)
        locks = await _locks(conn, *worker)
        for _ in range(20):
            await _chunk(conn, *worker)
    async with Database(url, size=1) as database:
        async with database.relaxed() as conn:
            for _ in range(20):
                await _chunk(conn, *worker)
            batch_id = await _number(conn, "select batch_id from batch")
        for _ in range(20):
            _ = [len(page) async for page in reads.results(database, batch_id, 1, after=39_000)]
        async with database.relaxed() as conn:
            size = await _number(conn, "select sum(total_bytes) from pg_backend_memory_contexts")
    return locks, size / 2**20


async def _locks(conn: Connection, pool_id: int, worker_id: int) -> int:
    """The most locks of one statement of a chunk, each planned anew in a transaction of its own."""
    [lease] = await service.claim(conn, pool_id, worker_id)
    items = await service.load(conn, lease)
    found = []
    for statement in (
        lambda: service.claim(conn, pool_id, worker_id),
        lambda: service.load(conn, lease),
        lambda: service.flush(conn, lease, [_result(item) for item in items]),
        lambda: service.finish(conn, lease),
    ):
        async with conn.transaction(force_rollback=True):
            assert await statement()
            found.append(
                await _number(conn, "select count(distinct relation) from pg_locks where pid = pg_backend_pid()")
            )
    return max(found)


async def _chunk(conn: Connection, pool_id: int, worker_id: int) -> None:
    [lease] = await service.claim(conn, pool_id, worker_id)
    assert await service.flush(conn, lease, [_result(item) for item in await service.load(conn, lease)])
    assert await service.finish(conn, lease) is not None


def _result(item: Item) -> Result:
    return Result(item.seq, True, 1, 20, 0, 20, b"{}")


async def _number(conn: Connection, query: str) -> int:
    row = await (await conn.execute(query.encode())).fetchone()
    assert row
    return int(row[0])
