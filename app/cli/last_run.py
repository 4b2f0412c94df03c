"""Whether the last run of `slackwater up` on a data directory came to its end: a file is there while one runs."""

import json
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from app import clock
from app.changes import service as changes
from app.changes.kinds import ChangeKind
from app.db.pool import Connection
from app.quantities import duration

_FILE = "up.run"
SIGNS = "logs/*.alive"  # the files whose times are signs of life


@dataclass(frozen=True, slots=True)
class KilledRun:
    """A run that did not come to its end. `seen`: its last sign of life."""

    pid: int
    host: str
    seen: datetime

    async def note(self, conn: Connection) -> None:
        """Write it to the timeline, at the time of its last sign of life."""
        now = clock.now()
        facts = {"pid": self.pid, "host": self.host, "until": clock.iso(now)}
        facts["down"] = duration((now - self.seen).total_seconds())
        await changes.record(conn, ChangeKind.UP_KILLED, "slackwater up", facts, at=min(self.seen, now))


def begin(data_dir: Path) -> KilledRun | None:
    """Note that a run begins. Returns the one before it, if that did not come to its end."""
    file, killed = data_dir / _FILE, None
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(file.read_text())
        seen = max(each.stat().st_mtime for each in (file, *data_dir.glob(SIGNS)))
        killed = KilledRun(int(found["pid"]), str(found["host"]), datetime.fromtimestamp(seen, UTC))
    with suppress(OSError):  # on a full disk only the next killed run is not noticed
        file.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
    return killed


def end(data_dir: Path) -> None:
    """Note that the run has come to its end."""
    with suppress(OSError):
        (data_dir / _FILE).unlink(missing_ok=True)
