"""Checks whether other users of this machine can read the data directory.

Only our user can read the files that our processes create in it. A directory that existed before keeps its modes, and `warn`
reports it.
"""

import os
import shlex
from pathlib import Path

import structlog

from app.db import cluster
from app.settings import Settings

_READ_WRITE, _ANY = 0o066, 0o077  # of group and others

log = structlog.get_logger("supervisor")


def remedy(settings: Settings) -> str:
    """The command that closes the data directory to other users; empty if it is closed."""
    folder = settings.data_dir
    if not folder.exists():
        return ""
    if not _passed_through(settings):
        return f"chmod go= {shlex.quote(str(folder))}" if _may(folder, _ANY) else ""
    found = [each for each in (folder, *folder.iterdir()) if not each.is_symlink()]
    return f"chmod -R go-rw {shlex.quote(str(folder))}" if any(_may(each, _READ_WRITE) for each in found) else ""


def warn(settings: Settings) -> None:
    """Log the remedy if there is one."""
    if command := remedy(settings):
        log.warning("data_dir.open_to_others", folder=str(settings.data_dir), remedy=command)


def _passed_through(settings: Settings) -> bool:
    """Whether the embedded server has to enter the folder to reach its cluster. Under root it runs as its own user."""
    inside = settings.data_dir.resolve() in cluster.place(settings).cluster.parents
    return os.geteuid() == 0 and not settings.database_url and inside


def _may(path: Path, bits: int) -> bool:
    return bool(path.stat().st_mode & bits)
