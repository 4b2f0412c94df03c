"""What the durable queue does on this machine, and how that compares with two other queues on the same PostgreSQL.

    python -m benchmarks.queue --json [--quick] [--database-url postgresql://…] [--only ARM[,ARM…]]

One server for everything (embedded unless --database-url names one; its user must be allowed to create databases), a
fresh database for each arm. Progress goes to stderr, with the load average in front; the last line of stdout is one JSON object.

Arms: http, memory, service, drain, wal, claims, fairness, cancel, poll, single, peers.
Workers call the verbs of app.queue.service, on the connections that workers/gpu takes for them; the steward is the real one.
Peers run jobs that do nothing and store no result, ours store one of 800 bytes; pgqueuer is run a second time with jobs that do.
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
    """How much of everything."""

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


# The names of the backlogs stay, so that the keys do; `quick` says that the figures mean nothing.
QUICK = QueueSizes(
    4000, 1, 1, 20, (("10k", 1000), ("100k", 4000), ("1m", 16_000)), 50, 200, 2, 10, pgqueuer=1000, procrastinate=100
)


def arms(sizes: QueueSizes) -> dict[str, Callable[[Testbed], dict[str, Any]]]:
    """Every arm by its name, in the order in which they run."""
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
    """What matters of the server, and what a durable commit costs on it."""
    with psycopg.connect(url, autocommit=True) as conn:
        rows = conn.execute("select name, current_setting(name) from pg_settings where name = any(%s)", [list(_SERVER)])
        found: dict[str, Any] = dict(rows.fetchall())
        cost = {}
        for mode in ("testbed", "off"):
            conn.execute(f"set synchronous_commit = {mode}".encode())
            began = monotonic()
            for _ in range(200):  # a transactional message is WAL to be committed, but no row anywhere
                conn.execute("select pg_logical_emit_message(true, 'bench', 'x')")
            cost[mode] = round((monotonic() - began) / 200 * 1e3, 3)
    return {**found, "synchronous_commit": {"durable": "testbed", "relaxed": "off"}, "commit_ms": cost}


def ratio(found: dict[str, Any]) -> float | None:
    """How many times as fast as the better peer we drain."""
    rates = [found.get(f"{peer}_jobs_s") for peer in queue_peers.PEERS]
    ours = found.get("drain_flush64_items_s")
    return round(ours / max(rate for rate in rates if rate), 2) if ours and any(rates) else None


def run(options: argparse.Namespace) -> dict[str, Any]:
    """All arms, or those asked for."""
    table = arms(QUICK if options.quick else QueueSizes())
    wanted = options.only.split(",") if options.only else list(table)
    if unknown := set(wanted) - set(table):
        raise SystemExit(f"no such arm: {', '.join(sorted(unknown))}; there are {', '.join(table)}")
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
    parser.add_argument("--json", action="store_true", help="for uniformity; stdout is always one JSON line")
    parser.add_argument("--quick", action="store_true", help="small and short: shows that it works, measures nothing")
    parser.add_argument("--database-url", default="", help="a PostgreSQL server to use instead of an embedded one")
    parser.add_argument("--only", default="", help="arms to run, separated by commas")
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
