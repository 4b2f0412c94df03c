"""One interface to objects, whatever stores them. A put returns when the object is durable. No object is ever partly visible."""

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Protocol, Self
from urllib.parse import unquote, urlsplit

from app import optional_packages
from app.errors import StorageError, StorageFull
from app.settings import Settings
from app.storage.folder import Folder

_UNREACHABLE = "The object store cannot be reached right now. Try again in a few seconds."
_NO_ROOM = (
    "The object store is full; nothing was stored. Send the request again once the operator has freed space there."
)
Part = tuple[int, int]  # start and length in bytes
_FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))


def place(settings: Settings) -> str:
    """The URL of the store that the settings name."""
    return settings.storage_url or (settings.data_dir / "objects").absolute().as_uri()


def room(settings: Settings) -> int | None:
    """The bytes that are free in the store's folder; None of a bucket, and of a folder that cannot be asked. Touches the disk."""
    where = urlsplit(place(settings))
    try:
        return shutil.disk_usage(unquote(where.path)).free if where.scheme == "file" else None
    except OSError:
        return None


class Backend(Protocol):
    """A store of objects. It raises OSError, FileNotFoundError for a missing object, or one of its own `errors`."""

    errors: tuple[type[Exception], ...]

    def is_unavailable(self) -> bool: ...
    async def put(self, key: str, body: bytes) -> None: ...
    async def put_file(self, key: str, path: Path) -> None: ...
    async def get(self, key: str) -> bytes: ...
    async def get_range(self, key: str, start: int, length: int) -> bytes: ...
    def stream(self, key: str, part: Part | None) -> AsyncIterator[bytes]: ...
    async def delete(self, keys: Sequence[str]) -> None: ...
    def pages(self, prefix: str) -> AsyncIterator[Sequence[tuple[str, int, datetime]]]: ...


class Store:
    """Objects by key. Every failure is a StorageError; a full store raises its subclass StorageFull."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The store that the settings name. Its backend is created at the first call, then shared. Raises NotInstalled."""
        return cls(_backend(place(settings), settings.storage_endpoint))

    async def put(self, key: str, body: bytes) -> None:
        """Store an object durably, replacing an older one with the same key."""
        with self._translated_errors(key):
            await self._backend.put(key, body)

    async def put_file(self, key: str, path: Path) -> None:
        """Store the content of a file durably, read in blocks."""
        with self._translated_errors(key):
            await self._backend.put_file(key, path)

    async def put_all(self, objects: Iterable[tuple[str, bytes]], at_once: int = 8) -> None:
        """Store several objects, `at_once` at a time. Raises the first error after all of them have ended."""
        rest = iter(objects)

        async def work() -> None:
            for key, body in rest:
                await self.put(key, body)

        for error in await asyncio.gather(*(work() for _ in range(at_once)), return_exceptions=True):
            if error is not None:
                raise error

    async def get(self, key: str) -> bytes:
        """A whole object."""
        with self._translated_errors(key):
            return await self._backend.get(key)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """A part of an object, shorter at its end. The start must be inside the object."""
        with self._translated_errors(key):
            return await self._backend.get_range(key, start, length)

    async def stream(self, key: str, part: Part | None = None) -> AsyncIterator[bytes]:
        """An object, or a part of it, in blocks of about 1 MiB."""
        with self._translated_errors(key):
            async for block in self._backend.stream(key, part):
                yield block

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        """Key and size of every object below a prefix of whole segments, in no particular order."""
        async for page in self._pages(prefix):
            for key, size, _ in page:
                yield key, size

    async def times(self, prefix: str) -> AsyncIterator[tuple[str, datetime]]:
        """Key of every object below a prefix of whole segments, and when it was put, by the store's clock."""
        async for page in self._pages(prefix):
            for key, _, at in page:
                yield key, at

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects. A missing object is no error."""
        with self._translated_errors(keys[0] if keys else ""):
            await self._backend.delete(keys)

    async def delete_prefix(self, prefix: str) -> int:
        """Delete all objects below a prefix. Returns their number."""
        removed = 0
        async for page in self._pages(prefix):
            await self.delete([key for key, *_ in page])
            removed += len(page)
        return removed

    async def _pages(self, prefix: str) -> AsyncIterator[Sequence[tuple[str, int, datetime]]]:
        with self._translated_errors(prefix):
            async for page in self._backend.pages(prefix):
                yield page

    @contextmanager
    def _translated_errors(self, key: str) -> Iterator[None]:
        """Raises the backend's errors as ours. A missing object in an unavailable store does not count as missing."""
        backend_errors: tuple[type[Exception], ...] = (OSError, *self._backend.errors)
        try:
            yield
        except backend_errors as error:
            if _is_full(error):
                raise StorageFull(_NO_ROOM) from error
            missing = isinstance(error, FileNotFoundError) and not self._backend.is_unavailable()
            raise StorageError(
                f"The object {key} is not there." if missing else _UNREACHABLE, missing=missing
            ) from error


@cache
def _backend(url: str, endpoint: str) -> Backend:
    """The backend for this URL."""
    place = urlsplit(url)
    if place.scheme == "file":
        return Folder(_existing(Path(unquote(place.path))))
    optional_packages.S3.need()
    from app.storage.s3 import Bucket

    return Bucket(place.netloc, place.path.strip("/"), endpoint)


def _existing(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if _is_full(error):
            raise StorageFull(_NO_ROOM) from error
        raise StorageError(_UNREACHABLE) from error
    return folder


def _is_full(error: Exception) -> bool:
    return any(text in str(error) for text in _FULL)
