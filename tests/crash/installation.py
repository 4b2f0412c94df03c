"""The folder of a run, whose `disk` is a small tmpfs if one can be mounted, and the PostgreSQL server on it."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg import conninfo

from app.db import embedded
from app.settings import Settings
from testing.waiting import LIMIT_SECONDS
from tests.crash.history import History

DISK_MB = 384
LEFT_BYTES = 24 * 1024  # a disk with room for a page or two fails in more places than a completely full one

# Runs until its stdin is closed, by us or by our death. Then it stops the server and removes the folder.
_GUARDIAN = """
cat >/dev/null
pid=$(head -1 "$1/disk/postgres/postmaster.pid" 2>/dev/null)
[ -n "$pid" ] && kill -9 "$pid"
sleep 0.3
umount -l "$1/disk" 2>/dev/null
rm -rf "$1"
"""


class RunFolder:
    """The folder of one run and its guardian."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="swcrash-"))
        self.folder.chmod(0o755)  # the embedded server runs as another user
        self.disk = self.folder / "disk"
        self.logs = self.folder / "logs"
        for folder in (self.disk, self.logs):
            folder.mkdir()
        options = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=755", "slackwater-crash", str(self.disk)]
        self.small = subprocess.run(options, capture_output=True, check=False).returncode == 0
        command = ["sh", "-c", _GUARDIAN, "guardian", str(self.folder)]
        self._guardian = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def fill(self) -> None:
        """Fill the disk."""
        with (self.disk / "ballast").open("wb") as ballast:
            while (size := self._free() - LEFT_BYTES) > 0:
                with suppress(OSError):  # other processes write at the same time
                    os.posix_fallocate(ballast.fileno(), ballast.seek(0, os.SEEK_END), size)

    def _free(self) -> int:
        state = os.statvfs(self.disk)
        return state.f_bavail * state.f_frsize

    def clear(self) -> None:
        """Free the disk again."""
        (self.disk / "ballast").unlink(missing_ok=True)

    def close(self, keep_logs: bool) -> Path | None:
        """Stop the server, unmount the disk and delete the folder. Returns where the logs are, if they are kept."""
        kept = None
        if keep_logs:
            kept = Path(tempfile.mkdtemp(prefix="swcrash-logs-"))
            shutil.copytree(self.logs, kept, dirs_exist_ok=True)
        assert self._guardian.stdin
        self._guardian.stdin.close()
        self._guardian.wait(LIMIT_SECONDS)
        return kept


class Postgres:
    """The embedded server. If it does not respond it is started again, as `slackwater up` does."""

    def __init__(self, settings: Settings, history: History) -> None:
        self.settings = settings
        self._history = history
        self._lock = asyncio.Lock()

    @property
    def url(self) -> str:
        """The database URL that leads directly to the server."""
        return embedded.database_url(self.settings)

    def socket(self) -> Path:
        """The Unix socket of the server."""
        return Path(str(conninfo.conninfo_to_dict(self.url)["host"])) / ".s.PGSQL.5432"

    async def start(self) -> None:
        """Start the server if it is not running."""
        async with self._lock:
            await asyncio.to_thread(embedded.start, self.settings)

    async def crash(self, seconds: float = 0.2) -> None:
        """Stop the server as a power failure does. `keep` can start it again after so many seconds."""
        async with self._lock:
            await asyncio.to_thread(embedded.stop, self.settings, "immediate")
            await asyncio.sleep(seconds)

    async def keep(self) -> None:
        """Restart the server whenever it does not respond, until cancelled."""
        while True:
            await asyncio.sleep(0.3)
            if await self.answers():
                continue
            try:
                await self.start()
                self._history.notes["postgres starts"] += 1
            except Exception as error:
                self._history.notes[f"postgres start failed: {type(error).__name__}"] += 1

    async def answers(self) -> bool:
        """Whether the server answers a query."""
        try:
            await self.rows("select 1")
        except psycopg.Error:
            return False
        return True

    async def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """The rows of one query."""
        url = self.url
        async with await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=5) as conn:
            cursor = await conn.execute(sql.encode(), parameters or None)
            return await cursor.fetchall() if cursor.description else []
