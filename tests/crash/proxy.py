"""A faulty wire between one process and PostgreSQL: a Unix socket that forwards, and can reset, mute or stall."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SOCKET = ".s.PGSQL.5432"
_BLOCK = 64 * 1024


class Wire:
    """The listener of one process. `upstream` gives the server's socket at the time of each connection."""

    def __init__(self, folder: Path, upstream: Callable[[], Path]) -> None:
        self.folder = folder
        self._upstream = upstream
        self._ends: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._requests = asyncio.Event()  # set: what the client sends is forwarded
        self._answers = asyncio.Event()  # set: what the server sends is forwarded
        self.release()

    @property
    def url(self) -> str:
        """The database URL that leads through this wire."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    async def start(self) -> None:
        """Listen."""
        self.folder.mkdir(parents=True)
        self._server = await asyncio.start_unix_server(self._serve, self.folder / SOCKET)

    async def close(self) -> None:
        """Cut everything and listen no more."""
        self._server.close()
        self.cut()

    def cut(self, keep: Callable[[], bool] = lambda: False) -> int:
        """Reset the connections that `keep` does not spare. Returns how many."""
        doomed = [ends for ends in self._ends if not keep()]
        for ends in doomed:
            for writer in ends:
                writer.transport.abort()
        return len(doomed)

    def mute(self) -> None:
        """The server hears and acts; its answers are held back."""
        self._answers.clear()

    def stall(self) -> None:
        """Nothing passes in either direction."""
        self._answers.clear()
        self._requests.clear()

    def release(self) -> None:
        """Let everything pass again, what was held back first."""
        self._answers.set()
        self._requests.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(self._upstream())
        except OSError:
            writer.transport.abort()
            return
        ends = (writer, up_writer)
        self._ends.append(ends)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, up_writer, self._requests))
                group.create_task(_pump(up_reader, writer, self._answers))
        finally:
            self._ends.remove(ends)
            for end in ends:
                end.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: asyncio.Event) -> None:
    with suppress(OSError):
        while block := await reader.read(_BLOCK):
            await passes.wait()
            writer.write(block)
            await writer.drain()
    with suppress(OSError):
        await passes.wait()
        writer.close()
