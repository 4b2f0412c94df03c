"""Tells the worker of an engine about synchronous requests that came through the door.

By datagrams to the worker's socket in the shared folder, if there is one: a few microseconds, and the worker wakes at once. Else
by the stream that gateways use. A lost event does no harm, because the worker's scrapes of the engine correct its count.
"""

import glob
import json
import os
import socket
from pathlib import Path
from time import monotonic
from typing import Any

from ..event_stream import EventStream

SOCKETS = "arrivals.*.sock"  # of the workers of this engine, each with a name of its own
LOOK_SECONDS = 1.0  # between two looks for workers' sockets
REST_SECONDS = 5.0  # pause before an unreachable worker is tried again


class DoorAnnouncer:
    """`worker`: the address for the stream; empty: unknown. It may be set later."""

    def __init__(self, token: str, page_dir: Path | None, worker: str) -> None:
        self.worker = worker
        self._token = token
        self._pattern = os.path.join(glob.escape(os.fspath(page_dir)), SOCKETS) if page_dir else None
        self._socket: socket.socket | None = None
        self._paths: list[str] = []
        self._looked = 0.0
        self._stream: EventStream | None = None
        self._rests_until = 0.0

    def tell(self, event: dict[str, Any], *, at_once: bool = False) -> bool:
        """Send one event without waiting. `at_once`: do not collect it with others. Returns whether it was sent."""
        line = json.dumps(event).encode()
        return self._by_socket(line) or self._by_stream(line + b"\n", at_once=at_once)

    def close(self) -> None:
        """End the stream and close the socket."""
        if self._stream is not None:
            self._stream.close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _by_socket(self, line: bytes) -> bool:
        if self._pattern is None:
            return False
        now = monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._paths, self._looked = glob.glob(self._pattern), now
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        sent = False
        for path in self._paths:
            try:
                self._socket.sendto(line, path)
                sent = True
            except OSError:
                continue  # its worker has died, or does not read
        return sent

    def _by_stream(self, line: bytes, *, at_once: bool) -> bool:
        if not self.worker or monotonic() < self._rests_until:
            return False
        if self._stream is None:
            self._stream = stream = EventStream(self.worker, self._token)
            stream.task.add_done_callback(lambda _: self._ended(stream))
        if self._stream.send(line, at_once=at_once):
            return True
        self._stream.task.cancel()
        return False

    def _ended(self, stream: EventStream) -> None:
        self._stream = None
        self._rests_until = monotonic() + REST_SECONDS
        if not stream.task.cancelled():
            stream.task.exception()
