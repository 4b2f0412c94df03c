"""Small tmpfs file systems that tests can fill."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.needs import missing


@contextmanager
def small_disk(folder: Path, megabytes: float) -> Iterator[None]:
    """A tmpfs mounted below the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={int(megabytes * 1024)}k", "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        missing(f"a tmpfs cannot be mounted: {getattr(error, 'stderr', None) or error}; run the tests as root")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def ballast(folder: Path, spare: int = 0) -> Path:
    """Write a file that leaves `spare` bytes free."""
    stat = os.statvfs(folder)
    path = folder / "ballast"
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, stat.f_bavail * stat.f_frsize - spare)
    return path
