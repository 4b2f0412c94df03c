"""Where the embedded server keeps its cluster and its socket, and as whom it runs.

PostgreSQL refuses to run as root, so root gives it a user of its own. Where that user cannot enter the data directory, or read
the wheel's programs, they lie in a folder of `OUTSIDE` instead. No mode of a folder that was there before is changed, and cluster
and socket are in folders that nobody else may enter.
"""

import hashlib
import os
import pwd
import shutil
import stat
import tempfile
from pathlib import Path
from typing import NamedTuple

from app.settings import Settings

SERVER_USER = "pgserver"
OUTSIDE = Path(f"/var/lib/slackwater-{SERVER_USER}")
_LONGEST_SOCKET = 107  # bytes of a Unix socket's path
_SOCKET = ".s.PGSQL.5432"
_ENTER = stat.S_IXOTH


class ClusterFolders(NamedTuple):
    """Folders of cluster and socket, and who owns them."""

    cluster: Path
    socket: Path


def place(settings: Settings) -> ClusterFolders:
    """Of this data directory: where its cluster is, else where it is to be. Makes nothing."""
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
    """The folder for what root's server cannot have in this data directory."""
    return OUTSIDE / _hash(data_dir.resolve())


def move_out(settings: Settings) -> Path | None:
    """Move a cluster to where root's server can enter it, out of a data directory where it cannot any more. Returns its new
    place; None if it can stay. Raises PermissionError where it cannot be moved.
    """
    data = settings.data_dir.resolve()
    old, new = data / "postgres", room(data) / "postgres"
    if os.geteuid() != 0 or not (old / "PG_VERSION").exists() or _enters(data):
        return None
    ailing = f"The cluster {old} lies where {SERVER_USER}, as whom PostgreSQL runs for root, cannot enter"
    if new.exists():
        raise PermissionError(f"{ailing}, and {new} is there as well: move away the one that you do not need")
    if (old / "postmaster.pid").exists() and _lives(old):
        raise PermissionError(f"{ailing}, and its server still runs: stop that, then start again")
    _passage(new, data)
    try:
        old.rename(new)
    except OSError as error:
        raise PermissionError(f"{ailing}: stop Slackwater, and `mv {old} {new}`") from error
    return new


def make(found: ClusterFolders, owner: pwd.struct_passwd, data_dir: Path) -> None:
    """Make the folders, each its owner's alone; one outside says whose data directory it is for.

    Raises PermissionError where one is another's.
    """
    for folder in dict.fromkeys(found):
        if OUTSIDE in folder.parents:
            _passage(folder, data_dir.resolve())
        _own(folder, owner)


def programs(wheel: Path) -> Path:
    """The folder `bin` of the wheel's PostgreSQL in `wheel`, or of a copy that the server's user can read."""
    if os.geteuid() != 0 or (_enters(wheel / "bin") and _readable(wheel / "bin" / "postgres")):
        return wheel / "bin"
    copy = OUTSIDE / f"programs-{_hash(wheel)}-{int(wheel.stat().st_mtime)}"
    if not copy.exists():
        OUTSIDE.mkdir(mode=0o711, exist_ok=True)
        OUTSIDE.chmod(0o711)
        draft, package = Path(tempfile.mkdtemp(dir=OUTSIDE)), wheel.parent
        shutil.copytree(wheel, draft / package.name / wheel.name, symlinks=True)
        if (
            libraries := package.with_name(f"{package.name}.libs")
        ).exists():  # the programs find them beside the package
            shutil.copytree(libraries, draft / libraries.name, symlinks=True)
        for path in (draft, *draft.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
        draft.rename(copy)
    return copy / wheel.parent.name / wheel.name / "bin"


def _passage(folder: Path, data: Path) -> None:
    folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    for parent in (OUTSIDE, folder.parent):  # ours: the server passes through them, whatever the umask was
        parent.chmod(0o711)
    (folder.parent / "data_dir").write_text(f"{data}\n")


def _lives(cluster: Path) -> bool:
    """Whether the server whose pid the cluster names is running; it has the cluster as its current directory."""
    pid = (cluster / "postmaster.pid").read_text().partition("\n")[0]
    try:
        return Path(f"/proc/{pid}/cwd").resolve() == cluster
    except OSError:
        return False


def _own(folder: Path, owner: pwd.struct_passwd) -> None:
    if not folder.exists():
        folder.mkdir(mode=0o700)
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    found = folder.lstat()
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == owner.pw_uid and not found.st_mode & 0o077
    if not private:
        raise PermissionError(f"{folder} must be a folder that {owner.pw_name} alone may enter; remove or mend it")


def _enters(folder: Path) -> bool:
    """Whether a user who owns nothing can pass through all these folders."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    return there == folder and all(each.stat().st_mode & _ENTER for each in (folder, *folder.parents))


def _readable(file: Path) -> bool:
    wanted = stat.S_IROTH | stat.S_IXOTH
    return file.stat().st_mode & wanted == wanted


def _hash(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
