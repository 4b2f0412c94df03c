"""A primary and its synchronous standby: PostgreSQL's programs from the wheel of the embedded server, reached by TCP."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from app.db import embedded
from app.processes import dies_with_parent
from app.settings import Settings
from testing.waiting import LIMIT_SECONDS, eventually, wait_for
from tests.crash.history import History
from tests.crash.installation import Postgres

CONNECT_SECONDS = 2  # to one host: a cut-off one must not delay the other for longer
_TRUST = "host all all all trust\nhost replication all all trust\n"
_OPTIONS = {
    "unix_socket_directories": "",
    "max_wal_size": "64MB",
    "min_wal_size": "32MB",
}
_STREAMS = "select sync_state from pg_stat_replication"


class Server:
    """One PostgreSQL server. `inside` begins every command that runs in the network of its host; empty: that is ours."""

    def __init__(self, folder: Path, address: str, port: int, inside: Sequence[str] = ()) -> None:
        self.address, self.port = address, port
        self.url = f"postgresql://postgres@{address}:{port}/postgres?connect_timeout={CONNECT_SECONDS}"
        self._data, self._log = folder, folder.with_suffix(".log")
        wheel = embedded._wheel()
        self._programs, owner = embedded._programs(wheel), embedded._owner(wheel)
        self._begin = [*inside, *(_as_user(owner.pw_uid, owner.pw_gid) if os.geteuid() == 0 else ())]
        folder.mkdir(mode=0o700)
        os.chown(folder, owner.pw_uid, owner.pw_gid)

    def initialise(self) -> None:
        """Create its cluster."""
        self._run("initdb", "--no-sync", "--auth=trust", "--encoding=utf8", "--username=postgres")
        with (self._data / "pg_hba.conf").open("a") as rules:
            rules.write(_TRUST)

    def clone(self, primary: "Server") -> None:
        """Copy the cluster of a primary, to be its standby."""
        self._run("pg_basebackup", "--no-sync", "--checkpoint=fast", "--write-recovery-conf", f"--dbname={primary.url}")

    def start(self, **options: str) -> None:
        """Start it, and wait until it answers. Call it in the main thread, with which it ends."""
        given = {**_OPTIONS, **options, "listen_addresses": self.address, "port": str(self.port)}
        settings = [f"--{name}={value}" for name, value in given.items()]
        command = [*self._begin, str(self._programs / "postgres"), "-D", str(self._data), *settings]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self._data,
                start_new_session=True,
                preexec_fn=dies_with_parent(),  # noqa: PLW1509
            )

        def started() -> bool:
            assert self._process.poll() is None, f"PostgreSQL does not start: {self._log.read_text()[-2000:]}"
            return self._answers()

        wait_for(started, f"PostgreSQL answers; see {self._log}")

    def promote(self) -> None:
        """Make a standby the primary."""
        self._run("pg_ctl", "-w", "promote")

    def kill(self) -> None:
        """End every process of the server with SIGKILL, its parent first, so that it ends nothing in order."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (folder / "cwd").readlink() == self._data and int(folder.name) != os.getpid():
                    os.kill(int(folder.name), signal.SIGKILL)

    def close(self) -> None:
        """End it, if it was ever started."""
        if hasattr(self, "_process"):
            self.kill()

    def _answers(self) -> bool:
        with suppress(psycopg.OperationalError):
            psycopg.connect(self.url).close()
            return True
        return False

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._begin, str(self._programs / program), *arguments, "-D", str(self._data)]
        done = subprocess.run(
            command, cwd=self._data, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
        )
        assert done.returncode == 0, f"{program}: {done.stderr[-2000:]}"


class Pair(Postgres):
    """Two servers with one URL, which leads to the one that takes writes. Durable commits wait for the standby."""

    def __init__(self, settings: Settings, history: History, primary: Server, standby: Server) -> None:
        super().__init__(settings, history)
        self.primary, self.standby = primary, standby

    @property
    def url(self) -> str:
        """The URL with both hosts."""
        hosts = ",".join(f"{server.address}:{server.port}" for server in (self.primary, self.standby))
        return (
            f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write&connect_timeout={CONNECT_SECONDS}"
        )

    async def start(self) -> None:
        """Start both. From the end on a durable commit of the primary waits for the standby."""
        self.primary.initialise()
        self.primary.start()
        self.standby.clone(self.primary)
        self.standby.start()
        await self.rows("alter system set synchronous_standby_names = '*'")
        await self.rows("select pg_reload_conf()")
        await eventually(lambda: self.rows(_STREAMS), "a synchronous standby", until=lambda found: found == [("sync",)])

    async def keep(self) -> None:
        """Nobody starts a primary again that was given up."""

    async def promote(self) -> None:
        """Make the standby the primary."""
        await asyncio.to_thread(self.standby.promote)

    async def moment(self) -> Any:
        """The time of the server that takes writes."""
        return (await self.rows("select clock_timestamp()"))[0][0]

    def close(self) -> None:
        """End both."""
        for server in (self.primary, self.standby):
            server.close()


def _as_user(uid: int, gid: int) -> list[str]:
    """PostgreSQL does not run as root. The kernel ends the process with our main thread."""
    ids = ["--reuid", str(uid), "--regid", str(gid), "--clear-groups"]
    return ["setpriv", *ids, "--pdeathsig", "KILL", "--"]
