"""One small interface to objects, whatever holds them. A put returns when the object is durable; none is there by halves."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

from app.errors import StorageError, StorageFull
from app.settings import Settings

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_PAGE = 1000
_BLOCK = 1 << 20
_PATIENCE = timedelta(seconds=20)
_AWAY = "The object store cannot be reached right now. Try again in a few seconds."
_FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))


class Store:
    """Objects by key. Every failure is a StorageError; where there is no room it is a StorageFull."""

    def __init__(self, backend: "ObjectStore", folder: Path | None = None) -> None:
        self._backend = backend
        self._folder = folder

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The store that the settings name: made at the first call, then shared."""
        url = settings.storage_url or (settings.data_dir / "objects").absolute().as_uri()
        return cls(*_backend(url, settings.storage_endpoint))

    async def put(self, key: str, body: bytes) -> None:
        """Keep an object durably, in place of an older one of that key."""
        import obstore

        with _told(key, self._folder):
            await obstore.put_async(self._backend, key, body)
            if self._folder is not None:
                await asyncio.to_thread(_sync, self._folder, key)

    async def put_file(self, key: str, path: Path) -> None:
        """Keep a file's content durably, read piece by piece."""
        import obstore

        with _told(key, self._folder):
            await obstore.put_async(self._backend, key, path)
            if self._folder is not None:
                await asyncio.to_thread(_sync, self._folder, key)

    async def put_all(self, objects: Iterable[tuple[str, bytes]], at_once: int = 8) -> None:
        """Keep several objects, some at a time. Raises the first error when none is under way any more."""
        rest = iter(objects)

        async def work() -> None:
            for key, body in rest:
                await self.put(key, body)

        for error in await asyncio.gather(*(work() for _ in range(at_once)), return_exceptions=True):
            if error is not None:
                raise error

    async def get(self, key: str) -> bytes:
        """A whole object."""
        import obstore

        with _told(key, self._folder):
            found = await obstore.get_async(self._backend, key)
            return bytes(await found.bytes_async())

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """A part of an object; less at its end. The start has to be inside."""
        import obstore

        with _told(key, self._folder):
            return bytes(await obstore.get_range_async(self._backend, key, start=start, length=length))

    async def stream(self, key: str) -> AsyncIterator[bytes]:
        """An object in blocks of about a megabyte."""
        import obstore

        with _told(key, self._folder):
            found = await obstore.get_async(self._backend, key)
            async for block in found.stream(_BLOCK):
                yield bytes(block)

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        """Key and size of every object below a prefix, which counts in whole segments, in no particular order."""
        async for page in self._pages(prefix):
            for found in page:
                yield found

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; those that do not exist are no error."""
        import obstore

        with _told(keys[0] if keys else "", self._folder):
            try:
                await obstore.delete_async(self._backend, list(keys))
            except FileNotFoundError:  # of a folder; the others may not have been tried
                for key in keys:
                    with suppress(FileNotFoundError):
                        await obstore.delete_async(self._backend, key)

    async def delete_prefix(self, prefix: str) -> int:
        """Remove everything below a prefix. Returns how many objects there were."""
        removed = 0
        async for page in self._pages(prefix):
            await self.delete([key for key, _ in page])
            removed += len(page)
        return removed

    async def _pages(self, prefix: str) -> AsyncIterator[Sequence[tuple[str, int]]]:
        import obstore

        with _told(prefix, self._folder):
            async for page in obstore.list(self._backend, prefix, chunk_size=_PAGE):
                yield [(found["path"], found["size"]) for found in page]


@cache
def _backend(url: str, endpoint: str) -> tuple["ObjectStore", Path | None]:
    """What speaks to the place that the URL names, and its folder if it is one. S3's keys and region are in AWS_*."""
    from obstore.store import LocalStore, S3Store

    place = urlsplit(url)
    if place.scheme == "file":
        folder = Path(unquote(place.path))
        with _told(str(folder)):
            return LocalStore(folder, automatic_cleanup=True, mkdir=True), folder
    store = S3Store(
        place.netloc,
        prefix=place.path.strip("/") or None,
        config={"endpoint": endpoint, "virtual_hosted_style_request": False} if endpoint else {},
        client_options={"allow_http": endpoint.startswith("http://"), "timeout": _PATIENCE},
        retry_config={"max_retries": 3, "retry_timeout": _PATIENCE},
    )
    return store, None


def _sync(folder: Path, key: str) -> None:
    """Bring a file and the directories that lead to it to the disk: a rename alone does not survive a power cut."""
    path = folder / key
    for place in (path, *list(path.parents)[: len(Path(key).parts)]):
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _told(key: str, folder: Path | None = None) -> Iterator[None]:
    """What the library raises leaves the block as one of our errors. Without its folder a store is away, not empty."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError) as error:
        if any(text in str(error) for text in _FULL):
            raise StorageFull(
                "The object store is full; nothing was stored. Send the request again once the operator has freed space there."
            ) from error
        missing = isinstance(error, FileNotFoundError) and (folder is None or folder.is_dir())
        raise StorageError(f"The object {key} is not there." if missing else _AWAY, missing=missing) from error
