"""Objects as files below a folder. A put is on the disk, with the directories that lead to it, before it returns.

A file appears whole or not at all: it is written beside its place under a name that no listing shows, then renamed. A
directory goes with its last object. The folder itself is never made again: one that is gone was perhaps not mounted.
"""

import asyncio
import errno
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

T = TypeVar("T")
_PAGE = 1000
_BLOCK = 1 << 20
_PARTIAL = ".partial"
_TRIES = 10  # a delete may take away the directory in which a file is just being made
_GONE = (FileNotFoundError, NotADirectoryError)
_threads = ThreadPoolExecutor(8, "objects")  # of their own: a slow disk must not hold up what else waits for a thread


class Folder:
    """A store in `root`, which must exist. Every failure is an OSError."""

    errors: tuple[type[Exception], ...] = ()

    def __init__(self, root: Path) -> None:
        self._root = root

    def away(self) -> bool:
        """Whether the folder itself is missing, so that nothing is known about its objects."""
        return not self._root.is_dir()

    async def put(self, key: str, body: bytes) -> None:
        """Keep an object in place of an older one of that key."""
        await _threaded(lambda: self._put(key, lambda file: _write(file, body)))

    async def put_file(self, key: str, path: Path) -> None:
        """Keep a file's content."""
        await _threaded(lambda: self._put(key, lambda file: _copy(file, path)))

    async def get(self, key: str) -> bytes:
        """A whole object."""
        return await _threaded((self._root / key).read_bytes)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """A part of an object; less at its end. The start has to be inside."""
        return await _threaded(lambda: _read(self._root / key, start, length))

    async def stream(self, key: str, part: tuple[int, int] | None) -> AsyncIterator[bytes]:
        """An object, or a part (start, length) of it, in blocks of a megabyte."""
        file = await _threaded(lambda: (self._root / key).open("rb"))
        start, left = part or (0, sys.maxsize)
        file.seek(start)
        try:
            while block := await _threaded(partial(file.read, min(_BLOCK, left))):
                left -= len(block)
                yield block
        finally:
            file.close()

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; those that do not exist are no error."""
        await _threaded(lambda: self._delete(keys))

    async def pages(self, prefix: str) -> AsyncIterator[Sequence[tuple[str, int]]]:
        """Key and size of every object below a prefix, some at a time."""
        found = self._walk(prefix)
        while page := await _threaded(lambda: list(islice(found, _PAGE))):
            yield page

    def _put(self, key: str, write: Callable[[Path], None]) -> None:
        for attempt in range(1, _TRIES + 1):
            try:
                self._put_once(self._root / key, write)
            except FileNotFoundError:
                if self.away() or attempt == _TRIES:
                    raise
            else:
                return

    def _put_once(self, path: Path, write: Callable[[Path], None]) -> None:
        partial = path.with_name(f".{uuid4().hex}{_PARTIAL}")
        self._make_directories(path.parent)
        try:
            write(partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        for directory in self._directories(path):
            _sync(directory)

    def _make_directories(self, directory: Path) -> None:
        """Those below the folder that are missing."""
        if directory != self._root and not directory.is_dir():
            self._make_directories(directory.parent)
            directory.mkdir(exist_ok=True)

    def _directories(self, path: Path) -> list[Path]:
        """Those that lead to a file, the nearest first; the folder itself is the last."""
        depth = len(path.relative_to(self._root).parts)
        return list(path.parents)[:depth]

    def _delete(self, keys: Sequence[str]) -> None:
        self._check_present()
        for path in (self._root / key for key in keys):
            with suppress(*_GONE):
                path.unlink()
            with suppress(OSError):  # until one is not empty
                for directory in self._directories(path)[:-1]:
                    directory.rmdir()

    def _check_present(self) -> None:
        if self.away():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._root))

    def _walk(self, prefix: str) -> Iterator[tuple[str, int]]:
        top = self._root / prefix.strip("/")
        self._check_present()
        for directory, _, names in os.walk(top, onerror=_unless_gone):
            for path in (Path(directory, name) for name in names if not _is_partial(name)):
                with suppress(*_GONE):
                    yield path.relative_to(self._root).as_posix(), path.stat().st_size


async def _threaded(call: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_threads, call)


def _write(file: Path, body: bytes) -> None:
    with file.open("xb", buffering=0) as output:
        view = memoryview(body)
        while view:
            view = view[output.write(view) :]
        os.fsync(output.fileno())


def _copy(file: Path, source: Path) -> None:
    shutil.copyfile(source, file)
    _sync(file)


def _read(file: Path, start: int, length: int) -> bytes:
    with file.open("rb") as content:
        if start >= os.fstat(content.fileno()).st_size:
            raise OSError(errno.EINVAL, "The start of the range is behind the end", str(file))
        content.seek(start)
        return content.read(length)


def _is_partial(name: str) -> bool:
    return name.startswith(".") and name.endswith(_PARTIAL)


def _sync(path: Path) -> None:
    """Bring a file, or the names in a directory, to the disk: a rename alone does not survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, _GONE):
        raise error
