"""Throughput and latency of the durable queue on this machine, compared with two other queues on the same PostgreSQL server.

    python -m benchmarks.queue --json [--quick] [--database-url postgresql://…] [--only ARM[,ARM…]]

All arms use one server, and each has a fresh database. The server is embedded unless --database-url names one, whose user
must be allowed to create databases. Progress goes to stderr, after the load average. The last line of stdout is one JSON object.

Arms: http, memory, service, drain, wal, claims, fairness, cancel, poll, single, peers.
Workers call app.queue.service on the same kinds of connections as workers/gpu; the steward is the real one. Our jobs store a
result of 800 bytes. The jobs of the other queues store none, and pgqueuer runs a second time with jobs that do.
"""

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

import psycopg

from benchmarks import queue_drain, queue_ingest, queue_order, queue_peers, queue_single
from benchmarks.harness import Testbed, open_testbed, say
from benchmarks.machine import describe

_SERVER = (
    "server_version",
    "fsync",
    "full_page_writes",
    "shared_buffers",
    "wal_sync_method",
    "max_wal_size",
    "data_checksums",
)


@dataclass(frozen=True)
class QueueSizes:
    """Sizes and durations of all arms."""

    batch: int = 50_000
    repeats: int = 3
    drains: int = 3
    upload_mb: int = 200
    backlogs: tuple[tuple[str, int], ...] = (("10k", 10_000), ("100k", 100_000), ("1m", 1_000_000))
    claims: int = 1000
    fair_chunks: int = 1600
    cancels: int = 5
    singles: int = 200
    pgqueuer: int = 40_000
    procrastinate: int = 2_000


# The backlogs keep their names, so that the keys of the result are the same.
QUICK = QueueSizes(
    4000, 1, 1, 20, (("10k", 1000), ("100k", 4000), ("1m", 16_000)), 50, 200, 2, 10, pgqueuer=1000, procrastinate=100
)


def arms(sizes: QueueSizes) -> dict[str, Callable[[Testbed], dict[str, Any]]]:
    """All arms by name, in the order in which they run."""
    jobs = {"procrastinate": sizes.procrastinate, "pgqueuer": sizes.pgqueuer}
    return {
        "http": lambda testbed: queue_ingest.http_ingest(testbed, sizes.batch, sizes.repeats),
        "memory": lambda testbed: queue_ingest.upload_memory(testbed, sizes.upload_mb),
        "service": lambda testbed: queue_ingest.service_ingest(testbed, sizes.batch, sizes.repeats),
        "drain": lambda testbed: queue_drain.drain(testbed, sizes.batch, sizes.drains),
        "wal": lambda testbed: queue_drain.wal(testbed, sizes.batch),
        "claims": lambda testbed: queue_order.claims(testbed, dict(sizes.backlogs), sizes.claims),
        "fairness": lambda testbed: queue_order.fairness(testbed, sizes.fair_chunks),
        "cancel": lambda testbed: queue_order.cancel(testbed, sizes.batch, sizes.cancels),
        "poll": lambda testbed: queue_ingest.poll(testbed, sizes.batch),
        "single": lambda testbed: queue_single.single(testbed, sizes.singles),
        "peers": lambda testbed: queue_peers.peers(testbed, jobs),
    }


def server(url: str) -> dict[str, Any]:
    """Settings of the server, and the duration of a durable and of a relaxed commit."""
    with psycopg.connect(url, autocommit=True) as conn:
        rows = conn.execute("select name, current_setting(name) from pg_settings where name = any(%s)", [list(_SERVER)])
        found: dict[str, Any] = dict(rows.fetchall())
        cost = {}
        for mode in ("on", "off"):
            conn.execute(f"set synchronous_commit = {mode}".encode())
            began = monotonic()
            for _ in range(200):  # a transactional message is WAL to be committed, but no row anywhere
                conn.execute("select pg_logical_emit_message(true, 'bench', 'x')")
            cost[mode] = round((monotonic() - began) / 200 * 1e3, 3)
    return {**found, "synchronous_commit": {"durable": "on", "relaxed": "off"}, "commit_ms": cost}


def ratio(found: dict[str, Any]) -> float | None:
    """Our drain rate divided by that of the faster peer."""
    rates = [found.get(f"{peer}_jobs_s") for peer in queue_peers.PEERS]
    ours = found.get("drain_flush64_items_s")
    return round(ours / max(rate for rate in rates if rate), 2) if ours and any(rates) else None


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run all arms, or those that --only names."""
    table = arms(QUICK if options.quick else QueueSizes())
    wanted = options.only.split(",") if options.only else list(table)
    if unknown := set(wanted) - set(table):
        raise SystemExit(f"unknown arm: {', '.join(sorted(unknown))}; choose from {', '.join(table)}")
    began, loads, seconds = monotonic(), {}, {}
    found: dict[str, Any] = {"benchmark": "queue", "quick": options.quick}
    with open_testbed(options.database_url) as testbed:
        found["server"] = server(testbed.admin_url)
        for name in wanted:
            started = monotonic()
            loads[name] = round(os.getloadavg()[0], 2)
            say(f"{name} …")
            found |= table[name](testbed)
            testbed.clear()
            seconds[name] = round(monotonic() - started, 1)
    found["ratio_best_peer"] = ratio(found)
    storing = found.get("pgqueuer_storing_results_jobs_s")
    found["ratio_pgqueuer_storing_results"] = (
        round(found["drain_flush64_items_s"] / storing, 2) if storing and "drain_flush64_items_s" in found else None
    )
    ends = {"load_average_at_start": loads, "seconds_by_arm": seconds, "seconds": round(monotonic() - began)}
    return {**found, **ends, "machine": describe()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--json", action="store_true", help="accepted in all benchmarks; stdout is always one JSON line"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes; checks that the benchmark works, the figures mean nothing"
    )
    parser.add_argument("--database-url", default="", help="use this PostgreSQL server instead of an embedded one")
    parser.add_argument("--only", default="", help="run only these arms, separated by commas")
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
