"""Temporary data directories for embedded servers. Run by root, a server keeps its cluster outside of its data directory."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.db import cluster

STOP_SECONDS = 20.0
PREFIX = "slackwater-tests-"
MEMORY = Path("/dev/shm")
ROOM_BYTES = 3 << 30  # free memory required; a server takes a few hundred MB
FORGOTTEN_SECONDS = 3600.0


def remove(data_dir: Path) -> None:
    """Delete the cluster outside of this data directory. A server that still runs there is stopped at once."""
    _delete(cluster.room(data_dir))


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder for a data directory, in memory if there is room. Copying a database, which has hundreds of files, then
    takes a tenth of the time. The mode lets the server of root, which runs as another user, enter the folder.
    """
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=_memory()) as made:
        place = Path(made)
        place.chmod(0o755)
        try:
            yield place
        finally:
            remove(place)


def _memory() -> Path | None:
    """A file system in memory with enough room; None if there is none, as in most containers."""
    enough = MEMORY.is_mount() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM_BYTES
    return MEMORY if enough else None


def sweep(ours: Path) -> None:
    """Delete the clusters of this run's folders, and those that killed runs left for temporary folders that no longer exist."""
    for room in cluster.OUTSIDE.glob("*/data_dir") if os.geteuid() == 0 else ():
        with suppress(FileNotFoundError):  # another run deletes it at the same time
            data = Path(room.read_text().strip())
            gone = not data.exists() and Path(tempfile.gettempdir()).resolve() in data.parents
            if gone or ours in data.parents:
                _delete(room.parent)
    for left in MEMORY.glob(f"{PREFIX}*"):
        with suppress(OSError):  # of another user, or deleted meanwhile
            if time.time() - left.stat().st_mtime > FORGOTTEN_SECONDS and not _running(left / "postgres"):
                shutil.rmtree(left)


def _delete(room: Path) -> None:
    place, deadline = room / "postgres", time.monotonic() + STOP_SECONDS
    while (pid := _running(place)) and time.monotonic() < deadline:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGQUIT)
        time.sleep(0.05)
    shutil.rmtree(room, ignore_errors=True)


def _running(place: Path) -> int:
    """The pid of the cluster's server, whose current directory is the cluster; 0 if none runs."""
    with suppress(OSError, ValueError, IndexError):
        pid = int((place / "postmaster.pid").read_text().splitlines()[0])
        return pid if Path(f"/proc/{pid}/cwd").resolve() == place else 0
    return 0
