"""A PgBouncer in front of a server: the system's, or the one that `deploy/install-tools.sh pgbouncer` has built."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import conninfo

from app.db.cluster import SERVER_USER
from app.processes import dies_with_parent
from testing.waiting import wait_for

BUILT = Path(__file__).parents[1] / ".tools/bin/pgbouncer"
OLDEST = (1, 22)
MISSING = "no PgBouncer from 1.22 on: `deploy/install-tools.sh pgbouncer` builds one"
_SOCKET_PORT = 5432


def program() -> str | None:
    """One that passes on prepared statements. None: there is none."""
    for path in (str(BUILT), shutil.which("pgbouncer")):
        if path and Path(path).exists() and version(path) >= OLDEST:
            return path
    return None


def version(path: str) -> tuple[int, ...]:
    """Its version."""
    told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"PgBouncer ([\d.]+)", told)
    return tuple(map(int, found[1].split("."))) if found else (0, 0)


class PgBouncer:
    """One in transaction mode, on a Unix socket. `database_url`: of the server behind it, also on a Unix socket, or by TCP."""

    def __init__(self, folder: Path, database_url: str, **settings: object) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        named = conninfo.conninfo_to_dict(database_url)
        self.url = f"postgresql://postgres@/{named.get('dbname', 'postgres')}?host={folder}"
        values = {
            "listen_port": _SOCKET_PORT,
            "listen_addr": "",
            "unix_socket_dir": folder,
            "auth_type": "any",
            "pool_mode": "transaction",
            "max_prepared_statements": 200,
            "default_pool_size": 20,
            "server_login_retry": 1,
            "logfile": folder / "log",
            "log_connections": 0,
            "log_disconnections": 0,
            **settings,
        }
        lines = [f"{name} = {value}" for name, value in values.items()]
        server = f"* = host={named['host']} port={named.get('port', 5432)} user={named.get('user', 'postgres')}"
        self._config = folder / "pgbouncer.ini"
        self._config.write_text("\n".join(["[databases]", server, "[pgbouncer]", *lines, ""]))
        for path, mode in ((folder, 0o755), (self._config, 0o644)):  # whatever the mask, another user reads them
            path.chmod(mode)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self.folder / f".s.PGSQL.{_SOCKET_PORT}"

    def start(self) -> None:
        """Start it, and wait until it listens. Like the server, it does not run as root."""
        path = program()
        assert path, MISSING
        user = SERVER_USER if os.geteuid() == 0 else None
        if user:
            shutil.chown(self.folder, user)
        # By its descriptor, because the user may not be able to enter the folder that it lies in.
        with Path(path).open("rb") as opened, (self.folder / "errors").open("wb") as errors:
            self._process = subprocess.Popen(
                [path, str(self._config)],
                executable=f"/proc/self/fd/{opened.fileno()}",
                pass_fds=[opened.fileno()],
                user=user,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
                preexec_fn=dies_with_parent(),  # noqa: PLW1509
            )
        wait_for(self._listens, "PgBouncer listens")

    def kill(self) -> None:
        """End it as a power failure does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self.socket.unlink(missing_ok=True)

    def _said(self) -> str:
        files = (self.folder / name for name in ("errors", "log"))
        return "\n".join(file.read_text() for file in files if file.exists())

    def _listens(self) -> bool:
        code = self._process and self._process.poll()
        assert code is None, f"PgBouncer does not start, exit code {code}:\n{self._said()}"
        url = conninfo.make_conninfo(self.url, dbname="pgbouncer", connect_timeout=2)
        psycopg.connect(url, autocommit=True).close()
        return True


@contextmanager
def pooling(folder: Path, database_url: str, **settings: object) -> Iterator[PgBouncer]:
    """One that runs during the block."""
    pooler = PgBouncer(folder, database_url, **settings)
    pooler.start()
    try:
        yield pooler
    finally:
        pooler.kill()
