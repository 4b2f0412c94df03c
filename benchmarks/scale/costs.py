"""What the database server does for a chunk, an item and a heartbeat: the constants of `slackwater capacity`."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import psycopg

from app.db.pool import Connection, Database
from app.engines import service as engines
from app.engines.engine_report import EngineReport
from app.queue import heartbeat
from app.queue import service as queue
from app.queue.heartbeat import Heartbeat
from benchmarks.harness import Testbed, cpu_seconds, open_testbed, part, say
from benchmarks.queue.drain import race, settled
from benchmarks.queue.workload import fill, pool_at

SMALL, LARGE = 8, 64  # items in a chunk
ROWS = 64  # results in a flush: one flush for each chunk
LEASE_SECONDS = 600
ENGINES = 8  # of a process, in one heartbeat


def costs(*, items: int = 24_000, heartbeats: int = 4_000) -> dict[str, Any]:
    """Processor time of the server in ms, WAL and disk in bytes, for each thing.

    The same items are drained in small and in large chunks: the difference is what a chunk costs, the rest what an item does.
    """
    with open_testbed("") as testbed:
        spent = {size: _drained(testbed, items, size) for size in (SMALL, LARGE)}
        heartbeat_ms = _heartbeats(testbed, heartbeats)
    small, large = spent[SMALL], spent[LARGE]
    chunk_ms = (small["drain_ms"] - large["drain_ms"]) / (items / SMALL - items / LARGE)
    item_ms = large["drain_ms"] / items - chunk_ms / LARGE
    found = {
        "cost_chunk_ms": round(chunk_ms, 3),
        "cost_item_ms": round(item_ms, 4),
        "cost_submitted_item_ms": round(large["fill_ms"] / items, 4),
        "cost_heartbeat_ms": round(heartbeat_ms, 3),
        "cost_wal_bytes_per_item": round(large["wal"] / items),
        "cost_disk_bytes_per_item": round(large["disk"] / items),
    }
    say(f"costs: {found}")
    return found


def _drained(testbed: Testbed, items: int, chunk_items: int) -> dict[str, float]:
    """Submit a batch and drain it. Returns ms of the server for both, and bytes beside the bodies."""
    settings = testbed.settings(testbed.database(), chunk_items=chunk_items)
    with psycopg.connect(settings.database_url, autocommit=True) as conn:
        with part(settings, "workers.steward"):
            asyncio.run(fill(settings, 64))  # plans and partitions are there
            race(settings.database_url, asyncio.run(pool_at(settings.database_url)), ROWS)
            settled(settings.database_url)
            conn.execute("checkpoint")
            before = _Server(conn)
            pool_id = asyncio.run(fill(settings, items))
            filled = _Server(conn)
            race(settings.database_url, pool_id, ROWS)
            settled(settings.database_url)
            after = _Server(conn)
        bodies = after.bodies - before.bodies
    testbed.clear()
    say(f"costs: {items} items in chunks of {chunk_items}")
    return {
        "fill_ms": 1e3 * (filled.cpu - before.cpu),
        "drain_ms": 1e3 * (after.cpu - filled.cpu),
        "wal": after.wal - before.wal - bodies,
        "disk": after.disk - before.disk - bodies,
    }


def _heartbeats(testbed: Testbed, count: int) -> float:
    """ms of the server for a heartbeat of a process with ENGINES engines, which hold no chunk."""
    settings = testbed.settings(testbed.database())

    async def beat() -> None:
        pool_id = await pool_at(settings.database_url)
        async with Database(settings.database_url, size=2) as database, database.durable() as conn:
            beats = [await _beat(conn, pool_id, number) for number in range(ENGINES)]
            for _ in range(count):
                await heartbeat.send(conn, beats, LEASE_SECONDS)

    with psycopg.connect(settings.database_url, autocommit=True) as conn:
        before = _Server(conn)
        asyncio.run(beat())
        return 1e3 * (_Server(conn).cpu - before.cpu) / count


async def _beat(conn: Connection, pool_id: int, number: int) -> Heartbeat:
    """The heartbeat of a new worker, which controls an engine."""
    worker = await queue.register_worker(conn, pool_id=pool_id, host="h", pid=1, lease_seconds=LEASE_SECONDS)
    url = f"http://engine-{number}.invalid"
    engine = await engines.take_engine(
        conn,
        name=f"engine-{number}",
        pool_id=pool_id,
        url=url,
        mode="attached",
        worker_id=worker,
        slots=8,
        arrival_url=None,
    )
    return Heartbeat(worker, engine, EngineReport(True, "open", 8))


class _Server:
    """The server on this machine, now: its processor time in seconds; its WAL, disk and stored bodies in bytes."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.cpu = _cpu_of_all(_parent(conn.info.backend_pid))
        row = conn.execute(
            """select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint, pg_database_size(current_database()),
                      (select coalesce(sum(octet_length(body)), 0) from item_payload)
                      + (select coalesce(sum(octet_length(body)), 0) from item_result)"""
        ).fetchone()
        assert row
        self.wal, self.disk, self.bodies = map(int, row)


def _cpu_of_all(postmaster: int) -> float:
    """Processor time of a server: of the processes that run, and of those that have ended."""
    running = [pid for folder in Path("/proc").glob("[0-9]*") if _parent(pid := int(folder.name)) == postmaster]
    spent = 0.0
    for pid in running:
        with contextlib.suppress(FileNotFoundError):  # it has ended meanwhile, so its parent counts it
            spent += cpu_seconds(pid)
    return spent + cpu_seconds(postmaster, of_ended_children=True)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
