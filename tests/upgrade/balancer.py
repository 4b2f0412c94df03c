"""A TCP balancer in front of several APIs. It takes one out of rotation as Kubernetes does before it stops a pod."""

import asyncio
from collections import Counter
from contextlib import suppress

_BLOCK = 64 * 1024


class Balancer:
    """Gives each connection to the next API in rotation."""

    def __init__(self) -> None:
        self._rotation: dict[str, int] = {}  # name → port, the next one first
        self._open: Counter[str] = Counter()
        self.used: set[str] = set()  # the APIs that got a connection

    async def start(self, port: int) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)

    async def close(self) -> None:
        """Stop listening."""
        self._server.close()

    def add(self, name: str, port: int) -> None:
        """Put an API into rotation."""
        self._rotation[name] = port

    async def remove(self, name: str) -> None:
        """Take an API out of rotation, and wait until its connections have ended: it then can be stopped."""
        self._rotation.pop(name, None)
        while self._open[name]:
            await asyncio.sleep(0.02)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._rotation:
            return writer.transport.abort()
        name = next(iter(self._rotation))
        port = self._rotation[name] = self._rotation.pop(name)
        self._open[name] += 1
        self.used.add(name)
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, up_writer))
                group.create_task(_pump(up_reader, writer))
        except OSError:
            writer.transport.abort()
        finally:
            self._open[name] -= 1


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while block := await reader.read(_BLOCK):
            writer.write(block)
            await writer.drain()
    with suppress(OSError):
        writer.close()
