"""What is read of a running installation every few seconds."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from app.cli.leftovers import MARK
from app.db import embedded
from app.environment import PART
from app.settings import Settings

PARTS = ("api", "steward", "maintenance", "notifier", "gpu-worker", "console", "up", "postgres")
# Rows of these come and go with the work. The others keep batches and history until they are deleted by age.
HOT = (
    "chunk",
    "sched",
    "sched_delta",
    "pool_status",
    "batch_delta",
    "worker",
    "engine",
    "pool",
    "response_events",
    "audit_pending",
)
_MEGABYTE = 1 << 20

_SIZES = """
select relname, pg_table_size(relid), pg_indexes_size(relid), n_dead_tup from pg_stat_user_tables where schemaname = 'public'
"""
_QUEUE = """
select (select count(*) from chunk),
       (select coalesce(extract(epoch from now() - min(b.opened_at)), 0)::float from chunk c join batch b using (batch_id)
        where c.state = 'leased'),
       (select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()),
       (select coalesce(sum(ok + failed), 0)::bigint from batch)
"""


class Readings:
    """Reads one installation: `read` gives values by the name of their series."""

    def __init__(self, settings: Settings, supervisor: int) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._mark = f"{MARK}={settings.data_dir.resolve()}".encode()
        self._conn = psycopg.connect(embedded.database_url(settings), autocommit=True)

    def close(self) -> None:
        """Close the connection to the database."""
        self._conn.close()

    def read(self) -> dict[str, float]:
        """Memory in MB, open files and connections by number, tables in MB, the age of the oldest batch with a leased chunk in
        seconds.
        """
        return {**self._processes(), **self._tables(), **self._queue()}

    def _processes(self) -> dict[str, float]:
        memory, files = dict.fromkeys(PARTS, 0.0), dict.fromkeys(PARTS, 0.0)
        for pid, part in self._parts():
            with suppress(OSError):  # it has just ended
                memory[part] += (_own_memory if part == "postgres" else _resident)(pid) / _MEGABYTE
                files[part] += len(os.listdir(f"/proc/{pid}/fd"))
        found = {f"rss_mb.{part}": value for part, value in memory.items() if value}
        return found | {f"open_files.{part}": value for part, value in files.items() if value}

    def _parts(self) -> Iterable[tuple[int, str]]:
        """Every process of the installation, with its part."""
        yield self._supervisor, "up"
        postmaster = _parent(self._conn.info.backend_pid)
        for pid in (int(folder.name) for folder in Path("/proc").glob("[0-9]*")):
            if postmaster in (pid, _parent(pid)):
                yield pid, "postgres"
            elif part := self._part_of(pid):
                yield pid, part

    def _part_of(self, pid: int) -> str | None:
        with suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if self._mark in variables:
                named = [each.decode().partition("=")[2] for each in variables if each.startswith(f"{PART}=".encode())]
                return named[0] if named and named[0] in PARTS else None
        return None

    def _tables(self) -> dict[str, float]:
        found = {"hot_tables_mb": 0.0, "hot_indexes_mb": 0.0, "hot_dead_rows": 0.0, "kept_mb": 0.0}
        for name, table, indexes, dead in self._conn.execute(_SIZES).fetchall():
            if name in HOT:
                found["hot_tables_mb"] += table / _MEGABYTE
                found["hot_indexes_mb"] += indexes / _MEGABYTE
                found["hot_dead_rows"] += dead
            else:
                found["kept_mb"] += (table + indexes) / _MEGABYTE
        return found

    def _queue(self) -> dict[str, float]:
        row: Any = self._conn.execute(_QUEUE).fetchone()
        names = ("chunks", "oldest_leased_batch_s", "database_connections", "items_done")
        return dict(zip(names, map(float, row), strict=True))


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def _own_memory(pid: int) -> int:
    """Memory of a server process that it does not share: shared buffers fill up, and would be counted in each."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0
