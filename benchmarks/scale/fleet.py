"""A fleet of real workers on timed engines, in a few operating-system processes."""

import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from app import processes
from app.environment import foreign_environment
from benchmarks.harness import MODEL, ROOT, SECRET, cpu_seconds, end

PROCESSES = 4
SLOTS = 8  # requests that an engine runs at once


@dataclass
class Fleet:
    """The running processes of a fleet."""

    parts: list[subprocess.Popen[str]]

    def counts(self) -> list[dict[str, Any]]:
        """What each process has counted until now: `claims`, and `first` as rows of (batch id, worker id, second)."""
        found = []
        for part in self.parts:
            assert part.stdin
            part.stdin.write("?\n")
            part.stdin.flush()
        for part in self.parts:
            assert part.stdout
            line = part.stdout.readline()
            if not line:
                raise SystemExit("a process of the fleet has ended")
            found.append(json.loads(line))
        return found

    @property
    def claims(self) -> int:
        """The claims of all workers until now."""
        return sum(int(each["claims"]) for each in self.counts())

    def firsts(self) -> list[tuple[int, int, float]]:
        """(batch id, worker id, second) of each worker's first claim of each batch."""
        return [(batch, worker, second) for each in self.counts() for batch, worker, second in each["first"]]


@contextlib.contextmanager
def running(url: str, engines: int, *, models: Sequence[str] = (MODEL,), item_seconds: float) -> Iterator[Fleet]:
    """A fleet of so many engines, which are the models' in turn. Yields once every worker controls its engine."""
    edges = [engines * n // PROCESSES // 8 * 8 for n in range(PROCESSES)] + [engines]
    parts = []
    try:
        for begin, stop in itertools.pairwise(edges):
            if begin == stop:
                continue
            order = {
                "url": url,
                "secret": SECRET,
                "begin": begin,
                "end": stop,
                "models": list(models),
                "seconds": item_seconds,
            }
            parts.append(
                subprocess.Popen(
                    [sys.executable, "-m", "benchmarks.scale.fleet_process", json.dumps(order)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=ROOT,
                    env=foreign_environment(),
                    start_new_session=True,
                    preexec_fn=processes.dies_with_parent(),  # noqa: PLW1509 - no thread runs yet
                )
            )
        for part in parts:
            assert part.stdout
            if part.stdout.readline().strip() != "ready":
                raise SystemExit("a process of the fleet did not become ready")
        yield Fleet(parts)
    finally:
        for part in parts:
            end(part)


def server_cpu_seconds(url: str) -> float:
    """Processor time of a PostgreSQL server on this machine so far: its postmaster, all that runs, and all that has ended."""
    with psycopg.connect(url, autocommit=True) as conn:
        pids = [row[0] for row in conn.execute("select pid from pg_stat_activity")]
        postmaster = int(_stat(conn.info.backend_pid)[1])
        running = sum(cpu_seconds(pid) for pid in pids if Path(f"/proc/{pid}").exists())
    own_and_ended = sum(int(each) for each in _stat(postmaster)[11:15]) / os.sysconf("SC_CLK_TCK")
    return running + own_and_ended


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
