"""The lock on a data directory: only one `slackwater up` or `demo` runs on it, and the lock file names its URLs."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TextIO

from app import clock
from app.access import origin
from app.api_url import base_url
from app.quantities import duration
from app.settings import Settings
from app.user_errors import Failure

_FILE = "up.lock"
_TRIES, _PAUSE_SECONDS = 3, 0.05  # `running` holds the lock for a moment


@dataclass(frozen=True, slots=True)
class Owner:
    """A running installation: the URL of its API, the supervisor's process, and since when it runs (ISO 8601, UTC). `console`:
    the URL of its console; empty: it has none. `models_file`: its catalogue; empty: not known. `command`: what was called.
    """

    url: str
    pid: int
    since: str
    console: str = ""
    models_file: str = ""
    command: str = "up"

    @property
    def named(self) -> str:
        """The command and its process, in words."""
        return f"`slackwater {self.command}` runs (pid {self.pid})"


@contextmanager
def owned(settings: Settings, command: str = "up") -> Iterator[None]:
    """Hold the data directory's lock and write the owner into it. Raises Failure if another process holds it."""
    with _locked(settings) as lock:
        since, console = clock.now().isoformat(timespec="seconds"), origin.of(settings) if settings.console_port else ""
        owner = Owner(base_url(settings), os.getpid(), since, console, str(settings.models_file.absolute()), command)
        lock.truncate(0)
        lock.write(json.dumps(asdict(owner)))
        lock.flush()
        yield


def refuse_second(settings: Settings) -> None:
    """Raise Failure if an installation runs on this data directory. It makes nothing there: this one may be refused yet."""
    if (settings.data_dir / _FILE).exists():
        with _locked(settings):
            pass


def running(data_dir: Path) -> Owner | None:
    """The installation that runs on this data directory, or is being started; None: none is."""
    try:
        with (data_dir / _FILE).open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _owner(lock)
    except OSError:
        return None
    return None


@contextmanager
def _locked(settings: Settings) -> Iterator[TextIO]:
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with (settings.data_dir / _FILE).open("a+") as lock:
        if not _taken(lock):
            remedy = "Use it, stop it, or start this one with another SLACKWATER_DATA_DIR and SLACKWATER_PORT."
            raise Failure(f"Slackwater already runs on {settings.data_dir}{_where(lock)}.", remedy)
        yield lock


def _taken(lock: TextIO) -> bool:
    for _ in range(_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_SECONDS)
        else:
            return True
    return False


def _owner(lock: TextIO) -> Owner | None:
    """The owner that the lock file names; None if it names none."""
    lock.seek(0)
    try:
        owner = Owner(**json.loads(lock.read()))
        datetime.fromisoformat(owner.since)
    except (ValueError, TypeError):
        return None
    return owner


def _where(lock: TextIO) -> str:
    """The owner that the lock file names, as a clause; empty if it names none."""
    owner = _owner(lock)
    if owner is None:
        return ""
    since = datetime.fromisoformat(owner.since)
    age = duration((clock.now() - since).total_seconds())
    began = f"{since.astimezone():%Y-%m-%d %H:%M:%S %Z} ({age})"
    return f": `slackwater {owner.command}` at {owner.url}, pid {owner.pid}, since {began}"
