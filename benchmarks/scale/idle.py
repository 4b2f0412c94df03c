"""What `slackwater up`, attached to an engine and without work, takes of its machine: processor time and memory."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psycopg

from app import processes
from app.db import cluster, embedded
from app.environment import PART, child_environment
from app.settings import Settings
from benchmarks.gateway.installation import running
from benchmarks.harness import end, say, start, until_ready
from testing import clusters

CALM_SECONDS = 30.0  # after the start, until each part has done what it does once
START_SECONDS = 300.0  # that a start may take on a busy machine
SERVER = "postgresql"


@dataclass(frozen=True)
class Use:
    """Of one part: its processes, their processor seconds so far, and their proportional set size in bytes."""

    processes: int = 0
    cpu_seconds: float = 0.0
    pss: int = 0

    def __add__(self, other: "Use") -> "Use":
        return Use(self.processes + other.processes, self.cpu_seconds + other.cpu_seconds, self.pss + other.pss)


def idle(calm: float, seconds: float) -> dict[str, Any]:
    """`idle_cpu_percent` of a core and `idle_pss_mb`: of all processes but the engine's; the same for each of its parts.
    `idle_statements_s`: what the database was asked.
    """
    with _engine() as engine, _up(engine) as (settings, pid):
        sleep(calm)
        before, asked, began = _uses(settings, pid), _statements(settings), monotonic()
        sleep(seconds)
        after, took = _uses(settings, pid), monotonic() - began
        asked = _statements(settings) - asked
    parts = {
        name: {
            "cpu_percent": round(100 * (use.cpu_seconds - before.get(name, Use()).cpu_seconds) / took, 2),
            "pss_mb": round(use.pss / 1e6, 1),
            "processes": use.processes,
        }
        for name, use in sorted(after.items())
    }
    totals = {key: round(sum(part[key] for part in parts.values()), 2) for key in ("cpu_percent", "pss_mb")}
    found = {f"idle_{key}": value for key, value in totals.items()}
    found["idle_statements_s"] = round(asked / took, 1)
    say(f"idle: {found}")
    return {**found, "idle_seconds": round(took, 1), "idle_parts": parts}


@contextlib.contextmanager
def _engine() -> Iterator[str]:
    """The URL of a fake engine in a process of its own."""
    with running([sys.executable, "-m", "testing.fakes.engine", "--port", str(processes.free_port())]) as process:
        assert process.stdout
        if not (url := process.stdout.readline().strip()):
            raise SystemExit("the fake engine did not start")
        yield url


PORTS = (
    "port",
    "console_port",
    "steward_metrics_port",
    "maintenance_metrics_port",
    "notifier_metrics_port",
    "worker_metrics_port",
)


@contextlib.contextmanager
def _up(engine: str) -> Iterator[tuple[Settings, int]]:
    """`slackwater up --attach` with the defaults of a user, but for its folder and its ports. Yields its settings and pid."""
    folder = Path(tempfile.mkdtemp(prefix="slackwater-bench-"))
    folder.chmod(0o755)  # the embedded server runs as a user of its own
    ports: dict[str, Any] = {name: processes.free_port() for name in PORTS}
    settings = Settings(data_dir=folder / "data", **ports)
    log = folder / "up.log"
    command = [sys.executable, "-m", "app.cli.main", "up", "--verbose", "--attach", engine]
    try:
        process = start(command, child_environment(settings, {}), log)
        try:
            until_ready(settings)
            _until_engine_ready(settings, log)
            yield settings, process.pid
        finally:
            end(process)
    finally:
        clusters.remove(settings.data_dir)
        shutil.rmtree(folder, ignore_errors=True)


def _until_engine_ready(settings: Settings, log: Path) -> None:
    deadline = monotonic() + START_SECONDS
    while monotonic() < deadline:
        with psycopg.connect(embedded.database_url(settings)) as conn:
            if conn.execute("select from engine where state = 'ready'").fetchone() is not None:
                return
        sleep(0.1)
    raise SystemExit(f"the engine did not become ready:\n{log.read_text()[-3000:]}")


def _statements(settings: Settings) -> int:
    """Transactions of the database so far, most of which are one statement."""
    with psycopg.connect(embedded.database_url(settings), autocommit=True) as conn:
        row = conn.execute("select sum(xact_commit + xact_rollback) from pg_stat_database").fetchone()
    return int(row[0]) if row else 0


def _uses(settings: Settings, pid: int) -> dict[str, Use]:
    """By part: `up`, those that it has started, and the database server. What ended meanwhile is that of its parent."""
    postmaster = int((cluster.place(settings).cluster / "postmaster.pid").read_text().split()[0])
    children = _children()
    found: dict[str, Use] = {}
    for root, own in ((pid, "up"), (postmaster, SERVER)):
        for each in _with_descendants(root, children):
            name = SERVER if root == postmaster else own if each == root else _part_of(each, own)
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found[name] = found.get(name, Use()) + _use(each)
    return found


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found.setdefault(int(_stat(int(folder.name))[1]), []).append(int(folder.name))
    return found


def _with_descendants(pid: int, children: dict[int, list[int]]) -> list[int]:
    return [pid, *(each for child in children.get(pid, ()) for each in _with_descendants(child, children))]


def _part_of(pid: int, otherwise: str) -> str:
    """The part's name that the supervisor gave to a process or to its parent."""
    with contextlib.suppress(OSError):
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if variable.startswith(f"{PART}=".encode()):
                return variable.partition(b"=")[2].decode()
    return otherwise


def _use(pid: int) -> Use:
    cpu = sum(int(each) for each in _stat(pid)[11:15]) / os.sysconf("SC_CLK_TCK")
    rollup = dict(line.split(":") for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return Use(1, cpu, int(rollup["Pss"].split()[0]) * 1024)


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
