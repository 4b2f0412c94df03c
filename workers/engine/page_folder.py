"""The folder in which the worker and the schedulers of one engine find each other: one control page for each rank.

The scheduler creates its page under another name and renames it, so a page is never seen half written. It holds a lock (flock)
on the page for its life. The kernel releases the lock when the process dies, by whatever cause, and the other side sees that
from another container too. Whoever cannot take even a shared lock has found a living page.

A page may be used by its owner, and by the folder's group if that may write to the folder; never by others.
"""

import fcntl
import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from time import sleep, time

from .control_page import ControlPage, PageError, Weights, blank

VARIABLE = "SLACKWATER_PAGE_DIR"  # environment variable of the engine, and setting of the worker
NO_FOLDER = "page_folder_missing"
NO_PAGE = "no_page"
UNREADABLE = "page_unreadable"
OPEN_TO_OTHERS = "page_open_to_others"
SEVERAL = "pages_of_several_engines"
IGNORED = "commands_ignored"  # the scheduler takes steps without the worker's commands
TRIPPED = (
    "scheduler_tripped"  # it has met a fault, and lets no batch work run until the worker lets vLLM schedule alone
)
UNSUPPORTED = "scheduler_unsupported"  # the page says that this version of vLLM was not tested
_PAGE = re.compile(r"rank-\d+\.[0-9a-f]{8}\.page(\.new)?")
_NEW = ".new"  # suffix of a page that is not renamed yet
_LEFT_BEHIND_SECONDS = 60.0  # after this time nobody renames it any more
_OTHERS = stat.S_IRWXO
_LOCK_TRIES, _LOCK_SECONDS = 100, 0.001


class OwnPage:
    """A scheduler's page, from its creation to the end of the process. `prior`: what the rank's last page had learned.

    Raises OSError. The folder is created if only its last part is missing.
    """

    def __init__(self, folder: Path, rank: int, engine: bytes) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self.prior = _clear(folder, rank)
        self.path = folder / f"rank-{rank}.{secrets.token_hex(4)}.page"
        new = self.path.with_name(self.path.name + _NEW)
        # The lock has an open file of its own, because a mapping would keep it in every child that is forked.
        self._lock = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _lock(self._lock)
            _share_with_group(self._lock, folder)
            os.write(self._lock, blank(rank, engine))
            self.page = ControlPage(new)
            new.rename(self.path)
        except BaseException:
            self._release()
            new.unlink(missing_ok=True)
            raise
        os.register_at_fork(after_in_child=self._release)

    def _release(self) -> None:
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def close(self) -> None:
        """Give the page up, as the end of the process does. The file stays for its weights."""
        self.page.close()
        self._release()


class LivingPage:
    """The page of a scheduler, as others see it. Raises OSError, PageError."""

    def __init__(self, path: Path) -> None:
        self.page = ControlPage(path)
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if os.fstat(self._file).st_mode & _OTHERS:
            self.close()
            raise PageError(OPEN_TO_OTHERS, path)

    @property
    def lives(self) -> bool:
        """Whether its scheduler lives, and the page can be read."""
        return _locked(self._file) and self.page.whole

    def close(self) -> None:
        """Unmap it; the file stays."""
        self.page.close()
        os.close(self._file)


class PageFolder:
    """The living pages of an engine. `problem`: the code of why they cannot be used; then there are none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problem: str | None = NO_PAGE
        self._known: dict[Path, LivingPage] = {}

    @property
    def pages(self) -> list[ControlPage]:
        """One page for each rank, the lowest first."""
        if self.problem is not None:
            return []
        return sorted((known.page for known in self._known.values()), key=lambda page: page.rank)

    def look(self) -> None:
        """Find new pages, and forget those of schedulers that are dead."""
        paths: set[Path] = set()
        problem: str | None = None
        try:
            paths = {path for path in _files(self.folder) if path.suffix != _NEW}
        except OSError as error:
            problem = NO_FOLDER if isinstance(error, FileNotFoundError) else UNREADABLE
        for path in [path for path, known in self._known.items() if path not in paths or not known.lives]:
            self._known.pop(path).close()
        for path in paths - self._known.keys():
            problem = self._open(path) or problem
        self.problem = problem or self._contradiction()

    def _open(self, path: Path) -> str | None:
        try:
            if lives(path):
                self._known[path] = LivingPage(path)
        except PageError as error:
            return error.code
        except FileNotFoundError:
            return None  # it was removed meanwhile
        except OSError:
            return UNREADABLE
        return None

    def _contradiction(self) -> str | None:
        pages = [known.page for known in self._known.values()]
        if not pages:
            return NO_PAGE
        several = len({page.engine for page in pages}) > 1 or len({page.rank for page in pages}) < len(pages)
        return SEVERAL if several else None

    def close(self) -> None:
        """Unmap all pages; the files stay."""
        for known in self._known.values():
            known.close()
        self._known, self.problem = {}, NO_PAGE


def lives(path: Path) -> bool:
    """Whether the page's scheduler lives. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return _locked(file)
    finally:
        os.close(file)


def _lock(file: int) -> None:
    """Lock a new page. Another rank that starts at this moment may look at it, and holds a shared lock for some microseconds."""
    for left in reversed(range(_LOCK_TRIES)):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not left:
                raise
            sleep(_LOCK_SECONDS)
        else:
            return


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def _files(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return [folder / entry.name for entry in entries if _PAGE.fullmatch(entry.name)]


def _share_with_group(file: int, folder: Path) -> None:
    """Let the folder's group use the page if it may write to the folder."""
    about = folder.stat()
    if not about.st_mode & stat.S_IWGRP:
        return
    with suppress(PermissionError):  # we are not in the group: the page stays ours alone
        os.fchown(file, -1, about.st_gid)
        os.fchmod(file, 0o660)


def _clear(folder: Path, rank: int) -> Weights | None:
    """Remove the pages of dead schedulers. Returns what the newest one of this rank had learned."""
    found: list[tuple[float, Weights]] = []
    for path in _files(folder):
        with suppress(OSError):
            changed = path.stat().st_mtime
            if lives(path) or (path.suffix == _NEW and time() - changed < _LEFT_BEHIND_SECONDS):
                continue
            if (learnt := _learnt(path, rank)) is not None:
                found.append((changed, learnt))
            path.unlink()
    return max(found)[1] if found else None


def _learnt(path: Path, rank: int) -> Weights | None:
    try:
        page = ControlPage(path)
    except (OSError, PageError):
        return None
    learnt = page.learnt() if page.rank == rank else None
    page.close()
    return learnt
