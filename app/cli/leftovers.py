"""What an `up` that was killed has left running on its data directory: parts, their engine, the embedded PostgreSQL.

Each process is known for certain to be of this data directory: by the mark in its environment, PostgreSQL by its folder.
"""

import time
from typing import NamedTuple

from app import processes
from app.db import cluster, embedded
from app.settings import Settings

MARK = "SLACKWATER_SUPERVISOR"
ENGINE_MARK = "SLACKWATER_ENGINE"  # workers.gpu.managed_engine marks its engines with it


class Leftovers(NamedTuple):
    """The pids of each."""

    parts: list[int]
    engine: list[int]
    database: list[int]

    @property
    def processes(self) -> list[int]:
        """Those that are killed; PostgreSQL is shut down."""
        return [*self.parts, *self.engine]

    @property
    def named(self) -> str:
        """What they are, in words: "the engine (pid 12)"; empty if there are none."""
        names = ("parts", "the engine", "PostgreSQL")
        found = [(name, pids) for name, pids in zip(names, self, strict=True) if pids]
        return ", ".join(f"{name} (pid {', '.join(map(str, pids))})" for name, pids in found)


def mark(settings: Settings) -> str:
    """What marks the processes of this data directory."""
    return str(settings.data_dir.resolve())


def find(settings: Settings) -> Leftovers:
    """What runs. While an `up` runs, these are its own."""
    parts = processes.marked(MARK, mark(settings))
    engine = processes.marked(ENGINE_MARK, f"{mark(settings)}:{settings.engine_name}")
    server = None if settings.database_url else cluster.server(cluster.place(settings).cluster)
    return Leftovers(parts, engine, [server] if server else [])


def stop(settings: Settings) -> Leftovers:
    """Kill parts and engine, and shut the database down. Returns what ran. Call with the lock of the data directory held."""
    first = found = find(settings)
    while found.processes:
        processes.kill(found.processes)
        time.sleep(0.1)
        found = find(settings)
    if found.database:
        embedded.stop(settings)
    return first
