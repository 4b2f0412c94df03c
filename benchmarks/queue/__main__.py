"""Throughput and latency of the durable queue on this machine, compared with two other queues on the same PostgreSQL server.

    python -m benchmarks.queue --json [--quick] [--database-url postgresql://…] [--only ARM[,ARM…]]

All arms use one server, and each has a fresh database. The server is embedded unless --database-url names one, whose user
must be allowed to create databases. Progress goes to stderr, after the load average. The last line of stdout is one JSON object.

Arms: http, memory, service, drain, wal, claims, fairness, cancel, poll, single, peers.
Workers call app.queue.service on the same kinds of connections as workers/gpu; the steward is the real one. Our jobs store a
result of 800 bytes. The jobs of the other queues store none, and pgqueuer runs a second time with jobs that do.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

import psycopg

from benchmarks import command
from benchmarks.harness import Testbed, open_testbed
from benchmarks.queue import drain, ingest, order, peers, single

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
        "http": lambda testbed: ingest.http_ingest(testbed, sizes.batch, sizes.repeats),
        "memory": lambda testbed: ingest.upload_memory(testbed, sizes.upload_mb),
        "service": lambda testbed: ingest.service_ingest(testbed, sizes.batch, sizes.repeats),
        "drain": lambda testbed: drain.drain(testbed, sizes.batch, sizes.drains),
        "wal": lambda testbed: drain.wal(testbed, sizes.batch),
        "claims": lambda testbed: order.claims(testbed, dict(sizes.backlogs), sizes.claims),
        "fairness": lambda testbed: order.fairness(testbed, sizes.fair_chunks),
        "cancel": lambda testbed: order.cancel(testbed, sizes.batch, sizes.cancels),
        "poll": lambda testbed: ingest.poll(testbed, sizes.batch),
        "single": lambda testbed: single.single(testbed, sizes.singles),
        "peers": lambda testbed: peers.peers(testbed, jobs),
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


def ratios(found: dict[str, Any]) -> dict[str, float | None]:
    """Our drain rate divided by that of the faster peer, and by that of the peer that stores results, too."""
    rates = [found.get(f"{peer}_jobs_s") for peer in peers.PEERS]
    ours, storing = found.get("drain_flush64_items_s"), found.get("pgqueuer_storing_results_jobs_s")
    return {
        "ratio_best_peer": round(ours / max(rate for rate in rates if rate), 2) if ours and any(rates) else None,
        "ratio_pgqueuer_storing_results": round(ours / storing, 2) if ours and storing else None,
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The wanted arms on one server."""
    table = arms(QUICK if options.quick else QueueSizes())
    with open_testbed(options.database_url) as testbed:
        found = command.in_turn(table, options.arms, testbed, after=testbed.clear)
        return {"server": server(testbed.admin_url), **found, **ratios(found)}


if __name__ == "__main__":
    command.main("queue", __doc__, run, minutes=10, arms=arms(QUICK), database=True)
