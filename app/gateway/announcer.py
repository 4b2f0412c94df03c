"""Tells the workers which synchronous requests come to their engines, so that batch work makes room before they arrive.

To each worker goes one HTTP request whose body does not end: a line for each event. A line is given to the socket as it
happens, which for an announcement is before its request is; nobody waits for an answer. Whatever fails is forgotten: a worker
that cannot be told is left alone for `rest_seconds` and goes by its scrapes.

The request is written by hand, since HTTP clients write a body when their own task comes to it. Form: RFC 9112, chunked.
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
GATHER_SECONDS = 0.02  # what need not be told at once waits so long for company: each write wakes the worker
PATIENCE_SECONDS = 0.05  # a request waits no longer for the first connection to its worker
HEARTBEAT_SECONDS = 5.0  # after so long an empty line, which shows whether the worker is there
LINGER_SECONDS = 1.0  # on leaving, for the last ends to be told
MOST_UNSENT = 256 * 1024  # bytes for a worker that does not take them
_PATH = "/arrivals"
_END = b"0\r\n\r\n"

log = structlog.get_logger("gateway")


class Announcer:
    """Speaks to any number of workers. Use as an async context manager."""

    def __init__(self, token: str, *, rest_seconds: float) -> None:
        self._token = token
        self._rest = rest_seconds
        self._resting: dict[str, float] = {}  # until which second
        self._lines: dict[str, _Line] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        lines = list(self._lines.values())
        for line in lines:
            line.hang_up()
        if lines:
            _, late = await asyncio.wait({line.task for line in lines}, timeout=LINGER_SECONDS)
            for task in late:
                task.cancel()

    async def announce(self, url: str | None, event: dict[str, Any]) -> None:
        """Tell the worker at `url` of a request that is about to be sent. Waits only for a connection that is being made."""
        ANNOUNCEMENTS.labels(self._say(url, event, at_once=True)).inc()
        line = self._lines.get(url or "")
        if line is not None and not line.ready.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await line.ready.wait()

    def mention(self, url: str | None, event: dict[str, Any]) -> None:
        """Tell it soon what became of the request."""
        self._say(url, event, at_once=False)

    def _say(self, url: str | None, event: dict[str, Any], *, at_once: bool) -> str:
        """What became of the event: told, failed, skipped."""
        if url is None or clock.monotonic() < self._resting.get(url, 0.0):
            return "skipped"
        if (line := self._lines.get(url)) is None:
            line = self._lines[url] = _Line(url, self._token)
            line.task.add_done_callback(lambda _: self._ended(url))
        if line.say(orjson.dumps(event) + b"\n", at_once=at_once):
            return "told"
        line.task.cancel()
        self._leave_alone(url, "it does not take what it is told")
        return "failed"

    def _ended(self, url: str) -> None:
        line = self._lines.pop(url)
        if line.error:
            self._leave_alone(url, line.error)
        line.ready.set()  # there is nothing to wait for

    def _leave_alone(self, url: str, error: str) -> None:
        log.warning("arrivals.not_told", url=url, error=error)
        self._resting[url] = clock.monotonic() + self._rest


class _Line:
    """The request to one worker; `ready` once it is under way or over; `task` ends with it, and `error` says of what it died."""

    def __init__(self, url: str, token: str) -> None:
        self._url = urlsplit(url)
        self._unsent = b""  # until there is a connection, or until it is time
        self._timer: asyncio.TimerHandle | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._over = False
        self._head = (
            f"POST {self._url.path.rstrip('/')}{_PATH} HTTP/1.1\r\nhost: {self._url.netloc}\r\nauthorization: Bearer {token}\r\n"
            "content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
        ).encode()
        self.ready = asyncio.Event()
        self.error = ""
        self.task = asyncio.create_task(self._hold())

    def say(self, line: bytes, *, at_once: bool) -> bool:
        """Give a line to the socket, at once or with what comes in the next moment. False: the worker takes no more."""
        self._unsent += line
        if self._writer is None:
            return len(self._unsent) <= MOST_UNSENT
        if at_once:
            self._send()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._send)
        return self._writer.transport.get_write_buffer_size() <= MOST_UNSENT

    def hang_up(self) -> None:
        """End the request; the worker answers when it has heard all of it."""
        self._over = True
        if self._writer is not None:
            self._send()
            self._writer.write(_END)

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unsent and self._writer is not None:
            self._writer.write(_chunk(self._unsent))
            self._unsent = b""

    async def _hold(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                port = self._url.port or (443 if self._url.scheme == "https" else 80)
                tls = True if self._url.scheme == "https" else None
                reader, writer = await asyncio.open_connection(self._url.hostname, port, ssl=tls)
        except (TimeoutError, OSError, ValueError) as error:  # ValueError: what is given as its address is none
            self.error = str(error) or "it could not be reached in time"
            return
        try:
            writer.write(self._head)
            self._writer = writer
            self._send()
            if self._over:
                writer.write(_END)
            self.ready.set()
            self.error = await self._answered(reader, writer)
        except (OSError, ValueError) as error:  # ValueError: an answer without lines
            self.error = str(error)
        finally:
            writer.close()

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """What is wrong with the answer, which comes when the body ends; empty: nothing."""
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
