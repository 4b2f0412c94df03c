"""A faulty connection between one process and PostgreSQL: a Unix socket proxy that can reset, mute, stall or fall silent."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from psycopg import conninfo

from app.settings import Settings
from testing import clusters

SOCKET = ".s.PGSQL.5432"
_BLOCK = 64 * 1024


class Wire:
    """The proxy of one process. `upstream` returns the socket of the server; it is called for each connection."""

    def __init__(self, folder: Path, upstream: Callable[[], Path]) -> None:
        self.folder = folder
        self._upstream = upstream
        self._ends: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._requests = asyncio.Event()  # set: what the client sends is forwarded
        self._answers = asyncio.Event()  # set: what the server sends is forwarded
        self.taken = 0  # connections so far
        self.release()

    @property
    def url(self) -> str:
        """The database URL of this proxy."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    async def start(self) -> None:
        """Listen."""
        self.folder.mkdir(parents=True)
        self._server = await asyncio.start_unix_server(self._serve, self.folder / SOCKET)

    async def close(self) -> None:
        """Reset all connections and stop listening."""
        self._server.close()
        self.cut()

    def cut(self, keep: Callable[[], bool] = lambda: False) -> int:
        """Reset all connections for which `keep` is false. Returns how many."""
        doomed = [ends for ends in self._ends if not keep()]
        for ends in doomed:
            for writer in ends:
                writer.transport.abort()
        return len(doomed)

    def mute(self) -> None:
        """Forward requests, but hold the responses back."""
        self._answers.clear()

    def stall(self) -> None:
        """Forward nothing in either direction."""
        self._answers.clear()
        self._requests.clear()

    def abandon(self) -> None:
        """Let the present connections stay silent for ever. New ones are served."""
        self.stall()
        self._requests, self._answers = asyncio.Event(), asyncio.Event()
        self.release()

    def release(self) -> None:
        """Forward everything again, first what was held back."""
        self._answers.set()
        self._requests.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(self._upstream())
        except OSError:
            writer.transport.abort()
            return
        self.taken += 1
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


@asynccontextmanager
async def wired(settings: Settings) -> AsyncIterator[tuple[Wire, Settings]]:
    """A proxy before the database of these settings, and the settings with which one goes through it."""
    server = conninfo.conninfo_to_dict(settings.database_url)["host"]
    with clusters.folder() as folder:
        wire = Wire(folder / "wire", lambda: Path(str(server)) / SOCKET)
        await wire.start()
        url = settings.database_url.replace(str(server), str(wire.folder))
        try:
            yield wire, settings.model_copy(update={"database_url": url})
        finally:
            await wire.close()
