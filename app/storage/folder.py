"""Objects as files below a folder. When a put returns, the file and its directories are on the disk.

A file becomes visible only when it is complete: it is written under a temporary name that no listing shows, then renamed. A
directory is removed with its last object. The root folder is never recreated: if it is missing, perhaps it is not mounted.
"""

import asyncio
import errno
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

T = TypeVar("T")
_PAGE = 1000
_BLOCK = 1 << 20
_PARTIAL = ".partial"
_TRIES = 10  # a concurrent delete may remove the directory in which a file is being created
_GONE = (FileNotFoundError, NotADirectoryError)
_threads = ThreadPoolExecutor(8, "objects")  # separate threads, so that a slow disk does not delay other work


class Folder:
    """A store in the folder `root`, which must exist. Every failure is an OSError."""

    errors: tuple[type[Exception], ...] = ()

    def __init__(self, root: Path) -> None:
        self._root = root

    def is_unavailable(self) -> bool:
        """Whether the folder itself is missing, so that a missing file proves nothing."""
        return not self._root.is_dir()

    async def put(self, key: str, body: bytes) -> None:
        """Store an object, replacing an older one with the same key."""
        await _threaded(lambda: self._put(key, lambda file: _write(file, body)))

    async def put_file(self, key: str, path: Path) -> None:
        """Store the content of a file."""
        await _threaded(lambda: self._put(key, lambda file: _copy(file, path)))

    async def get(self, key: str) -> bytes:
        """A whole object."""
        return await _threaded((self._root / key).read_bytes)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """A part of an object, shorter at its end. The start must be inside the object."""
        return await _threaded(lambda: _read(self._root / key, start, length))

    async def stream(self, key: str, part: tuple[int, int] | None) -> AsyncIterator[bytes]:
        """An object, or a part (start, length) of it, in blocks of 1 MiB."""
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
        """Delete objects. A missing object is no error."""
        await _threaded(lambda: self._delete(keys))

    async def pages(self, prefix: str) -> AsyncIterator[Sequence[tuple[str, int, datetime]]]:
        """Key, size and time of every object below a prefix, in pages."""
        objects = self._walk(prefix)
        while page := await _threaded(lambda: list(islice(objects, _PAGE))):
            yield page

    def _put(self, key: str, write: Callable[[Path], None]) -> None:
        for attempt in range(1, _TRIES + 1):
            try:
                self._put_once(self._root / key, write)
            except FileNotFoundError:
                if self.is_unavailable() or attempt == _TRIES:
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
        """Create the missing directories below the root."""
        if directory != self._root and not directory.is_dir():
            self._make_directories(directory.parent)
            with suppress(FileExistsError):  # `exist_ok` raises it when a delete removes the directory in between
                directory.mkdir()

    def _directories(self, path: Path) -> list[Path]:
        """The directories above a file, the nearest first, the root last."""
        depth = len(path.relative_to(self._root).parts)
        return list(path.parents)[:depth]

    def _delete(self, keys: Sequence[str]) -> None:
        self._check_present()
        for path in (self._root / key for key in keys):
            with suppress(*_GONE):
                path.unlink()
            with suppress(OSError):  # stops at the first that is not empty
                for directory in self._directories(path)[:-1]:
                    directory.rmdir()

    def _check_present(self) -> None:
        if self.is_unavailable():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._root))

    def _walk(self, prefix: str) -> Iterator[tuple[str, int, datetime]]:
        top = self._root / prefix.strip("/")
        self._check_present()
        for directory, _, names in os.walk(top, onerror=_unless_gone):
            for path in (Path(directory, name) for name in names if not _is_partial(name)):
                with suppress(*_GONE):
                    found = path.stat()
                    at = datetime.fromtimestamp(found.st_mtime, UTC)
                    yield path.relative_to(self._root).as_posix(), found.st_size, at


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
            raise OSError(errno.EINVAL, "The start of the range is beyond the end of the object", str(file))
        content.seek(start)
        return content.read(length)


def _is_partial(name: str) -> bool:
    return name.startswith(".") and name.endswith(_PARTIAL)


def _sync(path: Path) -> None:
    """Flush a file, or a directory's entries, to the disk. A rename alone does not survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, _GONE):
        raise error
