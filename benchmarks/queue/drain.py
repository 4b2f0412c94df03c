"""Arms of benchmarks.queue that drain batches, with four worker processes and the real steward."""

import asyncio
from collections import Counter
from statistics import median
from time import sleep
from typing import Any

import psycopg

from benchmarks.harness import Testbed, part, say
from benchmarks.queue.workload import WORKERS, fill, worker_processes
from testing.waiting import wait_for


def drain(testbed: Testbed, items: int, repeats: int) -> dict[str, Any]:
    """Rates at 16 and at 64 results per flush, in turns; each repeat drains a batch of its own."""
    settings = testbed.settings(testbed.database())
    rates: dict[int, list[float]] = {16: [], 64: []}
    verbs: dict[int, Counter[str]] = {16: Counter(), 64: Counter()}
    with part(settings, "workers.steward"):
        for _ in range(repeats):
            for rows, values in rates.items():
                pool_id = asyncio.run(fill(settings, items))
                seconds, reports = race(settings.database_url, pool_id, rows)
                settled(settings.database_url)
                values.append(items / seconds)
                for report in reports:
                    verbs[rows].update(report["spent"])
                say(f"drain, {rows} rows per flush: {values[-1]:,.0f} items/s")
    found: dict[str, Any] = {"drain_workers": WORKERS, "drain_items": items}
    for rows, values in rates.items():
        chunks = verbs[rows].pop("chunks")
        found[f"drain_flush{rows}_items_s"] = round(median(values))
        found[f"drain_flush{rows}_samples"] = [round(value) for value in values]
        found[f"drain_flush{rows}_ms_per_chunk"] = {k: round(v / chunks * 1e3, 2) for k, v in verbs[rows].items()}
    return found


def race(url: str, pool_id: int, rows: int) -> tuple[float, list[dict[str, Any]]]:
    """The seconds that the worker processes take for all items of the pool, and their reports."""
    with worker_processes(url, pool_id, rows) as workers:
        return workers.race()


def settled(url: str) -> None:
    """Wait until every batch is final. Then check that no item was lost or counted twice."""
    with psycopg.connect(url, autocommit=True) as conn:
        left = "select 1 from batch where finalized_at is null limit 1"
        wait_for(lambda: conn.execute(left).fetchone() is None, "every drained batch final")
        wrong = conn.execute(
            """select b.batch_id, b.state, b.total, b.ok, b.failed, r.n from batch b
               cross join lateral (select count(*) as n from item_result r where r.batch_id = b.batch_id) r
               where b.ok <> b.total or b.failed <> 0 or r.n <> b.total"""
        ).fetchall()
        remains = conn.execute(
            """select (select count(*) from chunk), (select count(*) from batch_delta),
                      (select count(*) from sched s where ready <> 0 or inflight_tokens <> (select coalesce(sum(est_tokens), 0)
                         from sched_delta d where (d.pool_id, d.tenant_id) = (s.pool_id, s.tenant_id)))"""
        ).fetchone()
    if wrong or remains != (0, 0, 0):
        raise SystemExit(f"the queue lost count: batches {wrong}, left (chunks, deltas, places) {remains}")


# ---------------------------------------------------------------- WAL


def wal(testbed: Testbed, items: int) -> dict[str, Any]:
    """WAL bytes from ingest to the settled batch, less the bytes of requests and results."""
    settings = testbed.settings(testbed.database())
    with psycopg.connect(settings.database_url, autocommit=True) as conn, part(settings, "workers.steward"):
        sleep(1)  # until the steward has made its partitions
        conn.execute("checkpoint")
        start = _wal(conn)
        pool_id = asyncio.run(fill(settings, items))
        filled = _wal(conn)
        race(settings.database_url, pool_id, 64)
        settled(settings.database_url)
        done = _wal(conn)
        row = conn.execute(
            """select (select sum(octet_length(body)) from item_payload), (select sum(octet_length(body)) from item_result)"""
        ).fetchone()
        assert row
    payload, results = int(row[0]), int(row[1])
    found = {
        "wal_overhead_bytes_per_item": round((done[0] - start[0] - payload - results) / items),
        "wal_ingest_overhead_bytes_per_item": round((filled[0] - start[0] - payload) / items),
        "wal_drain_overhead_bytes_per_item": round((done[0] - filled[0] - results) / items),
        # An upper bound: PostgreSQL leaves the free space of a page out of its image.
        "wal_full_page_images": done[1] - start[1],
        "wal_full_page_bytes_per_item_at_most": round((done[1] - start[1]) * 8192 / items),
        "wal_payload_bytes_per_item": round(payload / items),
        "wal_result_bytes_per_item": round(results / items),
    }
    say(f"WAL: {found['wal_overhead_bytes_per_item']} B per item beyond the bodies")
    return found


def _wal(conn: psycopg.Connection) -> tuple[int, int]:
    """(bytes, full-page images) written so far."""
    sleep(0.2)  # counters of other backends are reported with a delay
    row = conn.execute(
        "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint, (select wal_fpi from pg_stat_wal)"
    ).fetchone()
    assert row
    return int(row[0]), int(row[1])
