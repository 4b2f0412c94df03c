"""A client of the console's live parts: it opens the stream of a page and reads server-sent events."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

END = b"\n\n"
_MOST = 1 << 22  # bytes of one event


class StreamEndedError(RuntimeError):
    """The console has refused or closed a stream."""


class LiveStream:
    """One open stream."""

    def __init__(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.name, self.received = name, 0
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int, path: str, cookie: str) -> "LiveStream":
        """Ask for the stream, and read the head of its answer. Raises StreamEndedError."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_MOST)
        head = (
            f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncookie: {cookie}\r\n"
            "accept: text/event-stream\r\nsec-fetch-site: same-origin\r\n\r\n"
        )
        writer.write(head.encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in answer.splitlines()[0]:
            raise StreamEndedError(f"{path}: {answer.decode(errors='replace')[:200]}")
        return cls(path, reader, writer)

    async def events(self) -> AsyncIterator[tuple[float, bytes]]:
        """Each event with the time at which its end arrived. Raises StreamEndedError when the console closes the stream."""
        buffered = b""
        while True:
            size = int(await self._line(), 16)
            if not size:
                raise StreamEndedError(f"{self.name} was closed")
            buffered += await self._reader.readexactly(size)
            arrived = monotonic()
            await self._line()
            self.received += size
            *whole, buffered = buffered.split(END)
            for event in whole:
                yield arrived, event

    async def _line(self) -> bytes:
        try:
            return (await self._reader.readuntil(b"\r\n")).strip()
        except asyncio.IncompleteReadError:
            raise StreamEndedError(f"{self.name} was cut") from None

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def opened(port: int, path: str, cookie: str) -> AsyncIterator[LiveStream]:
    """A stream until the block ends."""
    stream = await LiveStream.open(port, path, cookie)
    try:
        yield stream
    finally:
        stream.close()
