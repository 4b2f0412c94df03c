"""The lock on a data directory: only one `slackwater up` or `demo` runs on it, and the lock file names its URL."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TextIO

from app import clock
from app.api_url import base_url
from app.quantities import duration
from app.settings import Settings
from app.user_errors import Failure


@dataclass(frozen=True, slots=True)
class Owner:
    """A running installation: the URL of its API, the supervisor's process, and since when it runs (ISO 8601, UTC)."""

    url: str
    pid: int
    since: str


@contextmanager
def owned(settings: Settings) -> Iterator[None]:
    """Hold the data directory's lock and write the owner into it. Raises Failure if another process holds it."""
    with _locked(settings) as lock:
        owner = Owner(base_url(settings), os.getpid(), clock.now().isoformat(timespec="seconds"))
        lock.truncate(0)
        lock.write(json.dumps(asdict(owner)))
        lock.flush()
        yield


def refuse_second(settings: Settings) -> None:
    """Raise Failure if an installation runs on this data directory."""
    with _locked(settings):
        pass


@contextmanager
def _locked(settings: Settings) -> Iterator[TextIO]:
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with (settings.data_dir / "up.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            remedy = "Use it, stop it, or start this one with another SLACKWATER_DATA_DIR and SLACKWATER_PORT."
            raise Failure(f"Slackwater already runs on {settings.data_dir}{_where(lock)}.", remedy) from None
        yield lock


def _where(lock: TextIO) -> str:
    """The owner that the lock file names, as a clause; empty if it names none."""
    lock.seek(0)
    try:
        owner = Owner(**json.loads(lock.read()))
        since = datetime.fromisoformat(owner.since)
    except (ValueError, TypeError):
        return ""
    age = duration((clock.now() - since).total_seconds())
    return f": {owner.url}, pid {owner.pid}, since {since.astimezone():%Y-%m-%d %H:%M:%S} ({age})"
