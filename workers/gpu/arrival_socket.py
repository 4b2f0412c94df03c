"""A socket in the folder that worker and engine share, where the engine's door announces synchronous requests by datagrams."""

import asyncio
import os
import secrets
import socket
from pathlib import Path
from typing import Self

import structlog
from pydantic import ValidationError

from app.causes import cause
from app.wrong_values import wrong
from workers.engine.door.announcer import SOCKETS
from workers.engine.step_stats_receiver import is_orphaned
from workers.gpu.arrival_events import ArrivalEvents

_MODE = 0o660  # an engine of another user has the group of the folder

log = structlog.get_logger()


class ArrivalSocket:
    """Listens in `folder`; None: nowhere. Use as an async context manager. Every worker has a socket, and the door tells all."""

    def __init__(self, folder: Path | None, events: ArrivalEvents) -> None:
        self._path = folder / SOCKETS.replace("*", secrets.token_hex(4)) if folder else None
        self._events = events
        self._transport: asyncio.BaseTransport | None = None

    async def __aenter__(self) -> Self:
        """If the socket cannot be opened, the worker relies on its scrapes of the engine."""
        if self._path is not None:
            try:
                await self._open(self._path)
            except OSError as error:
                log.warning("arrivals.deaf", socket=str(self._path), error=cause(error))
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._transport is not None and self._path is not None:
            self._transport.close()
            self._path.unlink(missing_ok=True)

    async def _open(self, path: Path) -> None:
        """Bind the socket, and remove those of dead workers."""
        for other in path.parent.glob(SOCKETS):
            if is_orphaned(other):
                other.unlink(missing_ok=True)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            bound.bind(os.fspath(path))
            os.chmod(path, _MODE)
            bound.setblocking(False)
            loop = asyncio.get_running_loop()
            self._transport, _ = await loop.create_datagram_endpoint(lambda: _Protocol(self._events), sock=bound)
        except BaseException:
            bound.close()
            raise


class _Protocol(asyncio.DatagramProtocol):
    def __init__(self, events: ArrivalEvents) -> None:
        self._events = events

    def datagram_received(self, data: bytes, addr: object) -> None:
        try:
            self._events.take(data)
        except ValidationError as error:
            log.warning("arrivals.invalid", error=wrong(error.errors(include_url=False)[0], secret=True))
