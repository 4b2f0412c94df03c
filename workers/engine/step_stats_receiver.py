"""Receives the engine's statistics of each step: one datagram, one `StepStats`. Does not import vLLM."""

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from struct import Struct, error

VARIABLE = "HARVEST_SOCKET"  # environment variable of the engine: the path of the socket
_FORMAT = Struct("<dIIIdIId")


@dataclass(frozen=True, slots=True)
class StepStats:
    """One step of one engine-core process, with batch and synchronous requests together.

    `at`: monotonic second at which the server process saw the step. `engine`: data-parallel rank. `running`, `waiting`:
    requests. `kv_usage`: share of the KV cache. `longest_gap`: seconds between two tokens of one request, the longest of this
    step; 0 if there is none.
    """

    at: float
    engine: int
    running: int
    waiting: int
    kv_usage: float
    prompt_tokens: int
    generation_tokens: int
    longest_gap: float

    def pack(self) -> bytes:
        """The datagram."""
        return _FORMAT.pack(*astuple(self))

    @classmethod
    def of(cls, datagram: bytes) -> "StepStats | None":
        """The step of a datagram; None if it has another format."""
        try:
            return cls(*_FORMAT.unpack(datagram))
        except error:
            return None


def is_orphaned(path: Path) -> bool:
    """Whether the path is a socket on which no process listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return False


class _Protocol(asyncio.DatagramProtocol):
    def __init__(self, seen: Callable[[StepStats], None]) -> None:
        self._seen = seen

    def datagram_received(self, data: bytes, addr: object) -> None:
        if (step := StepStats.of(data)) is not None:
            self._seen(step)


class StepReceiver:
    """Listens on `path` between `open` and `close`, and calls `seen` for each step. Open it before the engine starts."""

    def __init__(self, path: Path, seen: Callable[[StepStats], None]) -> None:
        self.path = path
        self._seen = seen
        self._transport: asyncio.BaseTransport | None = None

    async def open(self) -> None:
        """Bind the socket. Raises OSError, for example if the path is too long for a socket."""
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            bound.bind(os.fspath(self.path))
            bound.setblocking(False)
            loop = asyncio.get_running_loop()
            self._transport, _ = await loop.create_datagram_endpoint(lambda: _Protocol(self._seen), sock=bound)
        except BaseException:
            bound.close()
            raise

    def close(self) -> None:
        """Stop listening and remove the socket."""
        if self._transport is not None:
            self._transport.close()
        self.path.unlink(missing_ok=True)
