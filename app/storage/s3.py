"""Objects in an S3-compatible store. The client is an optional package, `slackwater[s3]`."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

_PAGE = 1000
_BLOCK = 1 << 20
_PATIENCE = timedelta(seconds=20)


class Bucket:
    """A prefix of a bucket. Credentials and region are in AWS_*. Failures are OSErrors and the library's `errors`."""

    errors: tuple[type[Exception], ...] = (BaseError,)

    def __init__(self, name: str, prefix: str, endpoint: str) -> None:
        self._store = S3Store(
            name,
            prefix=prefix or None,
            config={"endpoint": endpoint, "virtual_hosted_style_request": False} if endpoint else {},
            client_options={"allow_http": endpoint.startswith("http://"), "timeout": _PATIENCE},
            retry_config={"max_retries": 3, "retry_timeout": _PATIENCE},
        )

    def is_unavailable(self) -> bool:
        """Never: a bucket that does not answer raises another error than a missing object."""
        return False

    async def put(self, key: str, body: bytes) -> None:
        """Store an object, replacing an older one with the same key."""
        await obstore.put_async(self._store, key, body)

    async def put_file(self, key: str, path: Path) -> None:
        """Store the content of a file, read in blocks."""
        await obstore.put_async(self._store, key, path)

    async def get(self, key: str) -> bytes:
        """A whole object."""
        content = await obstore.get_async(self._store, key)
        return bytes(await content.bytes_async())

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """A part of an object, shorter at its end. The start must be inside the object."""
        return bytes(await obstore.get_range_async(self._store, key, start=start, length=length))

    async def stream(self, key: str, part: tuple[int, int] | None) -> AsyncIterator[bytes]:
        """An object, or a part (start, length) of it, in blocks of about 1 MiB."""
        content = await obstore.get_async(self._store, key, options={"range": (part[0], sum(part))} if part else {})
        async for block in content.stream(_BLOCK):
            yield bytes(block)

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects. A missing object is no error."""
        try:
            await obstore.delete_async(self._store, list(keys))
        except FileNotFoundError:  # the other keys may not have been deleted
            for key in keys:
                with suppress(FileNotFoundError):
                    await obstore.delete_async(self._store, key)

    async def pages(self, prefix: str) -> AsyncIterator[Sequence[tuple[str, int, datetime]]]:
        """Key, size and time of every object below a prefix, in pages."""
        async for page in obstore.list(self._store, prefix, chunk_size=_PAGE):
            yield [(item["path"], item["size"], item["last_modified"]) for item in page]
