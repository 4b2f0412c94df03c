"""A small HTTP/1.1 client that records the time of each read. It takes little CPU, because it shares the machine."""

import asyncio
from dataclasses import dataclass, field
from time import monotonic
from typing import cast
from urllib.parse import urlsplit

import httptools
import orjson


@dataclass(frozen=True)
class HttpTarget:
    """The URL and headers of requests."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()

    def request(self, body: bytes, headers: tuple[tuple[str, str], ...] = ()) -> bytes:
        """A POST of this JSON body."""
        parts = urlsplit(self.url)
        fixed = (("host", parts.netloc), ("content-type", "application/json"), ("content-length", str(len(body))))
        lines = [f"POST {parts.path} HTTP/1.1", *(f"{k}: {v}" for k, v in (*fixed, *self.headers, *headers)), "", ""]
        return "\r\n".join(lines).encode() + body


@dataclass(slots=True)
class TimedAnswer:
    """One answer. `reads`: the parts of its body, each with the time at which it was received."""

    sent: float
    status: int = 0
    reads: list[tuple[float, bytes]] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.reads)

    @property
    def first_ms(self) -> float:
        """Milliseconds from sending to the first part of the body."""
        return (self.reads[0][0] - self.sent) * 1e3

    def events(self) -> list[list[tuple[float, dict[str, object]]]]:
        """For each read, the stream events that it completed, as (time of the read, data)."""
        found, rest = [], b""
        for arrived, data in self.reads:
            *whole, rest = (rest + data).split(b"\n\n")
            lines = [event.removeprefix(b"data: ") for event in whole if event.startswith(b"data: {")]
            found.append([(arrived, orjson.loads(line)) for line in lines])
        return found


class _HttpConnection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[None] | None = None
        self._answer = TimedAnswer(0)
        self._now = 0.0

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, request: bytes) -> TimedAnswer:
        assert self._transport is not None
        self._waiting = asyncio.get_running_loop().create_future()
        self._answer = answer = TimedAnswer(monotonic())
        self._transport.write(request)
        await self._waiting
        return answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._now = monotonic()
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(exc or ConnectionResetError("closed in the middle of an answer"))

    # Callbacks of the parser.

    def on_headers_complete(self) -> None:
        self._answer.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        reads = self._answer.reads
        if reads and reads[-1][0] == self._now:
            reads[-1] = (self._now, reads[-1][1] + body)
        else:
            reads.append((self._now, body))

    def on_message_complete(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class HttpCaller:
    """Sends requests to one target, on at most `most` connections. Use it as an async context manager."""

    def __init__(self, target: HttpTarget, most: int = 1024) -> None:
        self.target = target
        self._idle: list[_HttpConnection] = []
        self._room = asyncio.Semaphore(most)

    async def __aenter__(self) -> "HttpCaller":
        return self

    async def __aexit__(self, *exc: object) -> None:
        for connection in self._idle:
            connection.close()

    async def post(self, body: bytes, headers: tuple[tuple[str, str], ...] = ()) -> TimedAnswer:
        """Send a request and return the whole answer. Raises OSError, and RuntimeError for any status but 200."""
        async with self._room:
            connection = await self._connection()
            try:
                answer = await connection.ask(self.target.request(body, headers))
            except BaseException:
                connection.close()
                raise
            self._idle.append(connection)
        if answer.status != 200:
            raise RuntimeError(f"{self.target.url}: {answer.status} {answer.body[:300]!r}")
        return answer

    async def _connection(self) -> _HttpConnection:
        while self._idle:
            if (connection := self._idle.pop()).usable:
                return connection
        parts = urlsplit(self.target.url)
        assert parts.hostname
        assert parts.port
        _, made = await asyncio.get_running_loop().create_connection(_HttpConnection, parts.hostname, parts.port)
        return made
