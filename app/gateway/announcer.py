"""Announces synchronous requests to the workers of their engines, so that batch work makes room before they arrive.

Each worker gets one HTTP request with an endless body, one line per event. The announcement of a request is written to
the socket before the request itself is sent; no response is awaited. Errors are not retried: a worker that cannot be
reached gets no announcements for `rest_seconds`, and relies on its scrapes of the engine's metrics meanwhile.

The HTTP request is written by hand, because HTTP clients delay a body until their own task runs. Format: RFC 9112, chunked.
"""

import asyncio
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlsplit

import orjson
import structlog

from app import clock
from app.gateway.metrics import ANNOUNCEMENTS

CONNECT_SECONDS = 2.0
GATHER_SECONDS = (
    0.02  # delay of events that are not urgent, to send several in one write, because each write wakes the worker
)
PATIENCE_SECONDS = 0.05  # the longest that a request waits for the first connection to its worker
HEARTBEAT_SECONDS = 5.0  # interval of empty lines, which detect a lost worker
LINGER_SECONDS = 1.0  # on exit, time for the last events to be sent
MOST_UNSENT = 256 * 1024  # bytes buffered for a worker that does not read them
_PATH = "/arrivals"
_END = b"0\r\n\r\n"

log = structlog.get_logger("gateway")


class Announcer:
    """Sends events to any number of workers. Use as an async context manager."""

    def __init__(self, token: str, *, rest_seconds: float) -> None:
        self._token = token
        self._rest = rest_seconds
        self._resting: dict[str, float] = {}  # by worker URL: the monotonic second until which it gets no announcements
        self._streams: dict[str, _EventStream] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        streams = list(self._streams.values())
        for stream in streams:
            stream.close()
        if streams:
            _, late = await asyncio.wait({stream.task for stream in streams}, timeout=LINGER_SECONDS)
            for task in late:
                task.cancel()

    async def announce(self, url: str | None, event: dict[str, Any]) -> None:
        """Announce a request that is about to be sent to the worker at `url`. Waits only while a connection is being made."""
        ANNOUNCEMENTS.labels(self._send(url, event, at_once=True)).inc()
        stream = self._streams.get(url or "")
        if stream is not None and not stream.ready.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await stream.ready.wait()

    def report(self, url: str | None, event: dict[str, Any]) -> None:
        """Send an event about an announced request to the worker, with a short delay."""
        self._send(url, event, at_once=False)

    def _send(self, url: str | None, event: dict[str, Any], *, at_once: bool) -> str:
        """Send the event. Returns the outcome for the metric: told, failed or skipped."""
        if url is None or clock.monotonic() < self._resting.get(url, 0.0):
            return "skipped"
        if (stream := self._streams.get(url)) is None:
            stream = self._streams[url] = _EventStream(url, self._token)
            stream.task.add_done_callback(lambda _: self._ended(url))
        if stream.send(orjson.dumps(event) + b"\n", at_once=at_once):
            return "told"
        stream.task.cancel()
        self._rest_worker(url, "it does not read the events")
        return "failed"

    def _ended(self, url: str) -> None:
        stream = self._streams.pop(url)
        if stream.error:
            self._rest_worker(url, stream.error)
        stream.ready.set()  # release requests that wait for the connection

    def _rest_worker(self, url: str, error: str) -> None:
        log.warning("arrivals.not_told", url=url, error=error)
        self._resting[url] = clock.monotonic() + self._rest


class _EventStream:
    """The HTTP request to one worker. `ready` is set when it is connected or over; `error` says why it failed."""

    def __init__(self, url: str, token: str) -> None:
        self._url = urlsplit(url)
        self._unsent = b""  # events that are not written yet
        self._timer: asyncio.TimerHandle | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._over = False
        self._head = (
            f"POST {self._url.path.rstrip('/')}{_PATH} HTTP/1.1\r\nhost: {self._url.netloc}\r\nauthorization: Bearer {token}\r\n"
            "content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
        ).encode()
        self.ready = asyncio.Event()
        self.error = ""
        self.task = asyncio.create_task(self._run())

    def send(self, line: bytes, *, at_once: bool) -> bool:
        """Write a line at once or after a short delay. Returns False if the worker has stopped reading."""
        self._unsent += line
        if self._writer is None:
            return len(self._unsent) <= MOST_UNSENT
        if at_once:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._flush)
        return self._writer.transport.get_write_buffer_size() <= MOST_UNSENT

    def close(self) -> None:
        """End the body. The worker responds when it has read all of it."""
        self._over = True
        if self._writer is not None:
            self._flush()
            self._writer.write(_END)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unsent and self._writer is not None:
            self._writer.write(_chunk(self._unsent))
            self._unsent = b""

    async def _run(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                port = self._url.port or (443 if self._url.scheme == "https" else 80)
                tls = True if self._url.scheme == "https" else None
                reader, writer = await asyncio.open_connection(self._url.hostname, port, ssl=tls)
        except (TimeoutError, OSError, ValueError) as error:  # ValueError: the address is invalid
            self.error = str(error) or "it could not be reached in time"
            return
        try:
            writer.write(self._head)
            self._writer = writer
            self._flush()
            if self._over:
                writer.write(_END)
            self.ready.set()
            self.error = await self._response_error(reader, writer)
        except (OSError, ValueError) as error:  # ValueError: a response without lines
            self.error = str(error)
        finally:
            writer.close()

    async def _response_error(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Wait for the response, which comes when the body ends. Returns what is wrong with it, or an empty string."""
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    status = await reader.readline()
                break
            except TimeoutError:
                if not self._over:
                    writer.write(_chunk(b"\n"))
        if status.startswith(b"HTTP/1.1 204") or (not status and self._over):
            return ""
        return status.decode(errors="replace").strip() or "it closed the connection"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
