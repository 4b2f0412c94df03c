"""The worker's end of the engine's per-step statistics: datagrams in, one `StepStats` each. Knows nothing of vLLM."""

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from struct import Struct, error

VARIABLE = "HARVEST_SOCKET"  # environment of the engine: the socket's path
_FORM = Struct("<dIIIdIId")


@dataclass(frozen=True, slots=True)
class StepStats:
    """One step of one engine-core process, class-blind.

    `at`: monotonic second at which the server process saw it; `engine`: data-parallel rank; requests running and
    waiting; share of the KV cache in use; prompt and generated tokens of the step; the longest gap between two tokens
    of one request that the step ended, in seconds, 0 if none.
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
        return _FORM.pack(*astuple(self))

    @classmethod
    def of(cls, datagram: bytes) -> "StepStats | None":
        """What a datagram says; None where it is none of ours."""
        try:
            return cls(*_FORM.unpack(datagram))
        except error:
            return None


def unheard(path: Path) -> bool:
    """Whether that is a socket that nobody listens to any more."""
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
    """Listens on `path` from `open` to `close` and calls `seen` for each step. Must be open before the engine starts."""

    def __init__(self, path: Path, seen: Callable[[StepStats], None]) -> None:
        self.path = path
        self._seen = seen
        self._transport: asyncio.BaseTransport | None = None

    async def open(self) -> None:
        """Bind the socket. Raises OSError, also where the path is longer than a socket's may be."""
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
