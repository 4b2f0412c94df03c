"""Arm of benchmarks.queue: two other PostgreSQL queues enqueue and run empty jobs on the same server."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.harness import ROOT, Testbed, WorkerProcesses, say

PEERS = {
    "procrastinate": ("procrastinate==3.10.0", "uvloop"),
    "pgqueuer": ("pgqueuer[asyncpg]==1.6.0",),
}
_UNFINISHED_JOBS = {
    "procrastinate": "select count(*) from procrastinate_jobs where status not in ('succeeded')",
    "pgqueuer": "select count(*) from pgqueuer",
}
PROCESSES = (1, 2, 4)
RESULT_BYTES = 800


def peers(testbed: Testbed, jobs: dict[str, int]) -> dict[str, Any]:
    """For each peer, the best processing rate over several numbers of processes, and the best enqueue rate."""
    python = _environment(testbed.folder / "peers")
    found: dict[str, Any] = {}
    for peer, count in jobs.items():
        rates: dict[int, float] = {}
        enqueue_rate = 0.0
        for processes in PROCESSES:
            enqueued, rates[processes] = _one(testbed, python, peer, count, processes)
            enqueue_rate = max(enqueue_rate, enqueued)
            say(f"{peer}, {processes} processes: {rates[processes]:,.0f} jobs/s, enqueue {enqueued:,.0f} jobs/s")
        found[f"{peer}_jobs_s"] = round(max(rates.values()))
        found[f"{peer}_enqueue_s"] = round(enqueue_rate)
        found[f"{peer}_jobs_s_by_processes"] = {processes: round(rate) for processes, rate in rates.items()}
        found[f"{peer}_jobs"] = count
    storing = [_one(testbed, python, "pgqueuer", jobs["pgqueuer"] // 4, n, RESULT_BYTES)[1] for n in PROCESSES[1:]]
    found["pgqueuer_storing_results_jobs_s"] = round(max(storing))
    say(f"pgqueuer, storing {RESULT_BYTES} bytes a job: {max(storing):,.0f} jobs/s")
    found["peer_versions"] = {peer: packages[0] for peer, packages in PEERS.items()}
    return found


def _environment(folder: Path) -> str:
    """A throwaway virtual environment with both peers; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    packages = [package for peer in PEERS.values() for package in peer]
    command = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "psycopg[binary,pool]"]
    subprocess.run([*command, *packages], check=True, stdout=sys.stderr)
    return python


def _one(
    testbed: Testbed, python: str, peer: str, jobs: int, processes: int, result_bytes: int = 0
) -> tuple[float, float]:
    """(enqueue rate, processing rate) of `processes` worker processes in a fresh database."""
    url = testbed.database(template=False)

    def command(act: str) -> list[str]:
        size = f"PEER_RESULT_BYTES={result_bytes}"
        return ["/usr/bin/env", size, python, "-m", "benchmarks.queue.peers_worker", peer, act, url, str(jobs)]

    subprocess.run(command("setup"), check=True, cwd=ROOT, stdout=sys.stderr)
    with WorkerProcesses([command("enqueue")]) as producer:
        enqueueing, _ = producer.race()
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("vacuum analyze")
        with WorkerProcesses([command("work")] * processes) as workers:
            working, reports = workers.race()
        row = conn.execute(_UNFINISHED_JOBS[peer].encode()).fetchone()
    done = sum(report["items"] for report in reports)
    if done != jobs or row != (0,):
        raise SystemExit(f"{peer} ran {done} of {jobs} jobs, left {row}")
    return jobs / enqueueing, jobs / working
