"""The folders of the embedded server's cluster and socket, and the user that the server runs as.

PostgreSQL refuses to run as root, so under root it runs as its own user. If that user cannot enter the data directory, or cannot
read the wheel's programs, these are put into a folder of `OUTSIDE`. Existing folders keep their modes. No other user may enter
the folders of cluster and socket.

A data directory has an identity, which its folder of `OUTSIDE` is found by: a new data directory does not take over the cluster
of a removed one that was at its path.
"""

import fcntl
import hashlib
import os
import pwd
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from app.settings import Settings

SERVER_USER = "pgserver"
OUTSIDE = Path(f"/var/lib/slackwater-{SERVER_USER}")
_LONGEST_SOCKET = 107  # bytes; the longest possible path of a Unix socket
_SOCKET = ".s.PGSQL.5432"
LOCK, _IDENTITY = "postgres.lock", "postgres.id"  # in the data directory
_ENTER = stat.S_IXOTH


class ClusterFolders(NamedTuple):
    """The folders of cluster and socket."""

    cluster: Path
    socket: Path


def place(settings: Settings) -> ClusterFolders:
    """The folders for this data directory: of its existing cluster, or of the one to be created. Creates nothing."""
    data = settings.data_dir.resolve()
    inside, outside = data / "postgres", room(data) / "postgres"
    if os.geteuid() != 0 or (inside / "PG_VERSION").exists():
        cluster = inside
    elif (outside / "PG_VERSION").exists():
        cluster = outside
    else:
        cluster = inside if _enters(data) else outside
    if len(os.fsencode(cluster / _SOCKET)) <= _LONGEST_SOCKET:
        return ClusterFolders(cluster, cluster)
    if os.geteuid() == 0:
        return ClusterFolders(cluster, room(data) / "socket")
    return ClusterFolders(cluster, Path(tempfile.gettempdir()) / f"slackwater-{os.geteuid()}-{_hash(data)}")


def room(data_dir: Path) -> Path:
    """The folder that replaces this data directory if the server's user cannot enter it."""
    data = data_dir.resolve()
    try:
        identity = (data / _IDENTITY).read_text()
    except FileNotFoundError:
        identity = "none yet"
    return OUTSIDE / _hash(data, identity)


def identify(data_dir: Path) -> bool:
    """Give a data directory its identity, whole or not at all. Returns whether it had none. Call with the lock held."""
    if (data_dir / _IDENTITY).exists():
        return False
    made = data_dir / f"{_IDENTITY}.new"
    made.write_text(secrets.token_hex(8))
    made.replace(data_dir / _IDENTITY)
    return True


def left_behind(data_dir: Path) -> list[Path]:
    """The clusters of removed data directories that were at this path."""
    data, own = data_dir.resolve(), room(data_dir)
    rooms = [file.parent for file in OUTSIDE.glob("*/data_dir") if file.read_text().strip() == str(data)]
    return [each / "postgres" for each in rooms if each != own and (each / "postgres").exists()]


def move_out(settings: Settings) -> Path | None:
    """Move the cluster below `OUTSIDE` if we are root and the server's user can no longer enter the data directory.

    Returns its new folder; None if it stays. Raises PermissionError if it cannot be moved.
    """
    data = settings.data_dir.resolve()
    old, new = data / "postgres", room(data) / "postgres"
    if os.geteuid() != 0 or not (old / "PG_VERSION").exists() or _enters(data):
        return None
    problem = f"Under root PostgreSQL runs as the user {SERVER_USER}, which cannot enter the cluster's folder {old}"
    if new.exists():
        raise PermissionError(f"{problem}. The cluster {new} exists too: move away the one that you do not need")
    if server(old):
        raise PermissionError(f"{problem}. The cluster's server still runs: stop it, then start again")
    _passage(new, data)
    try:
        old.rename(new)
    except OSError as error:
        raise PermissionError(f"{problem}. Stop Slackwater, then run `mv {old} {new}`") from error
    return new


def make(found: ClusterFolders, owner: pwd.struct_passwd, data_dir: Path) -> None:
    """Create the folders, accessible to their owner only. A folder outside the data directory names it in a file.

    Raises PermissionError if a folder belongs to another user.
    """
    for folder in dict.fromkeys(found):
        if OUTSIDE in folder.parents:
            _passage(folder, data_dir.resolve())
        _own(folder, owner)


def server(cluster: Path) -> int | None:
    """The pid of the cluster's server; None if it does not run. The current directory of its process is the cluster."""
    try:
        pid = int((cluster / "postmaster.pid").read_text().partition("\n")[0])
        return pid if Path(f"/proc/{pid}/cwd").resolve() == cluster else None
    except (OSError, ValueError):
        return None


def programs(wheel: Path) -> Path:
    """The `bin` folder of PostgreSQL in the folder `wheel`, or in a copy that the server's user can read."""
    if os.geteuid() != 0 or (_enters(wheel / "bin") and _readable(wheel / "bin" / "postgres")):
        return wheel / "bin"
    copy = OUTSIDE / f"programs-{_hash(wheel)}-{int(wheel.stat().st_mtime)}"
    if not copy.exists():
        with alone():
            if not copy.exists():
                _copy(wheel, copy)
    return copy / wheel.parent.name / wheel.name / "bin"


@contextmanager
def alone() -> Iterator[None]:
    """For a block, be the only process that changes what all of this machine's clusters share. Needs root."""
    OUTSIDE.mkdir(mode=0o711, exist_ok=True)
    OUTSIDE.chmod(0o711)
    with (OUTSIDE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _copy(wheel: Path, copy: Path) -> None:
    draft, package = OUTSIDE / "draft", wheel.parent
    shutil.rmtree(draft, ignore_errors=True)  # of a process that was killed
    shutil.copytree(wheel, draft / package.name / wheel.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")  # the programs expect them next to the package
    if libraries.exists():
        shutil.copytree(libraries, draft / libraries.name, symlinks=True)
    for path in (draft, *draft.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
    draft.rename(copy)


def _passage(folder: Path, data: Path) -> None:
    folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    for parent in (OUTSIDE, folder.parent):  # the server's user must be able to enter them, whatever the umask is
        parent.chmod(0o711)
    (folder.parent / "data_dir").write_text(f"{data}\n")


def _own(folder: Path, owner: pwd.struct_passwd) -> None:
    if not folder.exists():
        folder.mkdir(mode=0o700)
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    found = folder.lstat()
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == owner.pw_uid and not found.st_mode & 0o077
    if not private:
        raise PermissionError(
            f"{folder} must be a folder that only {owner.pw_name} may enter. Remove it, or correct its owner and mode."
        )


def _enters(folder: Path) -> bool:
    """Whether the folder exists, and a user who owns none of its parents can enter it."""
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    return existing == folder and all(each.stat().st_mode & _ENTER for each in (folder, *folder.parents))


def _readable(file: Path) -> bool:
    bits = stat.S_IROTH | stat.S_IXOTH
    return file.stat().st_mode & bits == bits


def _hash(path: Path, identity: str = "") -> str:
    return hashlib.sha256(os.fsencode(path) + identity.encode()).hexdigest()[:16]
