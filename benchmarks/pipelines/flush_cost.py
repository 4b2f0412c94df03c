"""Arm `flush`: what the marker of a batch that feeds adds to the statement that stores results.

Flushes with and without a marker alternate, in the same chunks and with the same results, each kind on a connection of its own:
the processor time of its server process is that of these flushes. WAL is what each of them has added to the log. A third
connection claims, ends leases, and deletes markers as the steward does.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from app.db.pool import Connection, Database
from app.queue import service as queue
from app.queue.types import Lease, Result
from app.settings import Settings
from benchmarks.harness import open_testbed, say
from benchmarks.queue.drain_worker import answer
from benchmarks.queue.workload import fill

SIZES = (16, 32, 64)  # results in a flush
CHUNK_ITEMS = 64
WARM_ITEMS = 1280
LEASE_SECONDS = 7200
_LSN = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"


@dataclass
class Spent:
    """What flushes have cost the server, by whether they leave a marker: seconds of a processor, bytes of WAL."""

    cpu: defaultdict[bool, float] = field(default_factory=lambda: defaultdict(float))
    wal: defaultdict[bool, float] = field(default_factory=lambda: defaultdict(float))


def flush_cost(*, items: int = 24_000, rounds: int = 5) -> dict[str, Any]:
    """`flush_server_cpu_ratio`, `flush_wal_ratio`: flushes with a marker to those without one, over all sizes; the medians of
    the rounds. `items`: of each size in a round.
    """
    found: dict[int, list[Spent]] = {size: [] for size in SIZES}
    with open_testbed("") as testbed:
        for number in range(rounds):
            for size in SIZES:
                settings = testbed.settings(testbed.database(), chunk_items=CHUNK_ITEMS)
                found[size].append(asyncio.run(_flushes(settings, items, size)))
                testbed.clear()
            say(f"flush: round {number + 1} of {rounds}: {_ratios([found[size][-1] for size in SIZES])}")
    of_rounds = [_ratios(each) for each in zip(*found.values(), strict=True)]
    return {
        "flush_server_cpu_ratio": round(median(cpu for cpu, _ in of_rounds), 3),
        "flush_server_cpu_ratio_samples": [round(cpu, 3) for cpu, _ in of_rounds],
        "flush_wal_ratio": round(median(wal for _, wal in of_rounds), 3),
        "flush_ratios_by_results": {
            str(size): dict(zip(("server_cpu", "wal"), (round(n, 3) for n in _ratios(each)), strict=True))
            for size, each in found.items()
        },
        "flush_items": items * rounds * len(SIZES),
    }


def _ratios(spent: Sequence[Spent]) -> tuple[float, float]:
    """Of processor time and of WAL, with a marker to without."""

    def ratio(name: str) -> float:
        with_marker, without = (sum(getattr(each, name)[marked] for each in spent) for marked in (True, False))
        return float(with_marker / without)

    return ratio("cpu"), ratio("wal")


async def _flushes(settings: Settings, items: int, size: int) -> Spent:
    """What half of the items cost with a marker, and the other half without."""
    spent, kinds = Spent(), _alternating()
    async with AsyncExitStack() as stack:
        own = {marked: await stack.enter_async_context(_session(settings.database_url)) for marked in (False, True)}
        conn, _ = await stack.enter_async_context(_session(settings.database_url))
        for count in (WARM_ITEMS, items):  # the first ones make plans
            spent = Spent()
            pool_id = await fill(settings, count)
            worker = await queue.register_worker(
                conn, pool_id=pool_id, host="bench", pid=os.getpid(), lease_seconds=LEASE_SECONDS
            )
            before = {marked: _ran(pid) for marked, (_, pid) in own.items()}
            while leases := await queue.claim(conn, pool_id, worker):
                await _chunk(conn, leases[0], size, own, kinds, spent)
            spent.cpu.update({marked: _ran(pid) - before[marked] for marked, (_, pid) in own.items()})
    return spent


def _ran(pid: int) -> float:
    """Seconds of a processor that a process of one thread has had, exactly: `stat` has ticks of 10 ms."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _alternating() -> Iterator[bool]:
    """Whether the next flush leaves a marker. Each kind comes first in every other pair."""
    while True:
        yield from (True, False, False, True)


@asynccontextmanager
async def _session(url: str) -> AsyncIterator[tuple[Connection, int]]:
    """A connection, and the process of the server that serves it."""
    async with Database(url, size=1) as database, database.durable() as conn:
        yield conn, conn.info.backend_pid


async def _chunk(
    conn: Connection,
    lease: Lease,
    size: int,
    own: dict[bool, tuple[Connection, int]],
    kinds: Iterator[bool],
    spent: Spent,
) -> None:
    """Store the results of a chunk, so many in a flush."""
    results: list[Result] = [answer(item) for item in await queue.load(conn, lease)]
    for first in range(0, len(results), size):
        marked = next(kinds)
        before = await _lsn(conn)
        assert await queue.flush(own[marked][0], lease, results[first : first + size], feeds=marked)
        spent.wal[marked] += await _lsn(conn) - before
    await queue.finish(conn, lease)
    await conn.execute("delete from handoff")


async def _lsn(conn: Connection) -> int:
    row = await (await conn.execute(_LSN)).fetchone()
    assert row
    return int(row[0])
