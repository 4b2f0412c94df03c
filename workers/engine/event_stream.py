"""The events about synchronous requests that one gateway or door sends to one worker: an HTTP request with an endless body.

The HTTP request is written by hand, because HTTP clients delay a body until their own task runs. Format: RFC 9112, chunked.
"""

import asyncio
from urllib.parse import urlsplit

CONNECT_SECONDS = 2.0
# Delay of events that are not urgent, to send several in one write, because each write wakes the worker.
GATHER_SECONDS = 0.02
HEARTBEAT_SECONDS = 5.0  # interval of empty lines, which detect a lost worker
MOST_UNSENT = 256 * 1024  # bytes buffered for a worker that does not read them
_PATH = "/arrivals"
_END = b"0\r\n\r\n"


class EventStream:
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
        self._flush()
        self._write(_END)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unsent and self._writer is not None:
            self._write(_chunk(self._unsent))
            self._unsent = b""

    def _write(self, data: bytes) -> None:
        """Write, unless the connection is over: uvloop's transports raise then."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(data)

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
                    self._write(_chunk(b"\n"))
        if status.startswith(b"HTTP/1.1 204") or (not status and self._over):
            return ""
        return status.decode(errors="replace").strip() or "it closed the connection"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
