"""Announces synchronous requests to the workers of their engines, so that batch work makes room before they arrive. Workers
without work hear on the same lines that some has come (`waker`).

Each worker gets one HTTP request with an endless body, one line per event. The announcement of a request is written to
the socket before the request itself is sent; no response is awaited. Errors are not retried: a worker that cannot be
reached gets no announcements for `rest_seconds`, and relies on its scrapes of the engine's metrics meanwhile. A line without
events for `UNUSED_SECONDS` is closed, so that a gateway has lines only to the engines that its callers use.
"""

import asyncio
from contextlib import suppress
from typing import Any, Self

import orjson
import structlog

from app import clock
from app.gateway.metrics import ANNOUNCEMENTS
from workers.engine.event_stream import EventStream

PATIENCE_SECONDS = 0.05  # the longest that a request waits for the first connection to its worker
UNUSED_SECONDS = 60.0
LINGER_SECONDS = 1.0  # on exit, time for the last events to be sent

log = structlog.get_logger("gateway")


class Announcer:
    """Sends events to any number of workers. Use as an async context manager."""

    def __init__(self, token: str, *, rest_seconds: float) -> None:
        self._token = token
        self._rest = rest_seconds
        self._resting: dict[str, float] = {}  # by worker URL: the monotonic second until which it gets no announcements
        self._streams: dict[str, EventStream] = {}
        self._used: dict[str, float] = {}  # by worker URL: the monotonic second of the last event on its line
        self._closing: set[asyncio.Task[None]] = set()  # of lines that are closed, and whose worker still reads

    async def __aenter__(self) -> Self:
        self._watch = asyncio.create_task(self._close_unused())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._watch.cancel()
        for url in list(self._streams):
            self._close(url)
        if self._closing:
            _, late = await asyncio.wait(set(self._closing), timeout=LINGER_SECONDS)
            for task in late:
                task.cancel()

    async def _close_unused(self) -> None:
        while True:
            await asyncio.sleep(UNUSED_SECONDS / 4)
            long_ago = clock.monotonic() - UNUSED_SECONDS
            for url in [url for url in self._streams if self._used[url] < long_ago]:
                self._close(url)

    def _close(self, url: str) -> None:
        """End a line in order. The next event for this worker opens another one."""
        stream, _ = self._streams.pop(url), self._used.pop(url)
        self._closing.add(stream.task)
        stream.task.add_done_callback(self._closing.discard)
        stream.close()

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

    def wake(self, url: str | None) -> None:
        """Tell the worker that work has come for its engine. Waits for nothing."""
        self._send(url, {"event": "wake"}, at_once=True)

    def _send(self, url: str | None, event: dict[str, Any], *, at_once: bool) -> str:
        """Send the event. Returns the outcome for the metric: told, failed or skipped."""
        if url is None or clock.monotonic() < self._resting.get(url, 0.0):
            return "skipped"
        if (stream := self._streams.get(url)) is None:
            opened = stream = self._streams[url] = EventStream(url, self._token)
            stream.task.add_done_callback(lambda _: self._ended(url, opened))
        self._used[url] = clock.monotonic()
        if stream.send(orjson.dumps(event) + b"\n", at_once=at_once):
            return "told"
        stream.task.cancel()
        self._rest_worker(url, "it does not read the events")
        return "failed"

    def _ended(self, url: str, stream: EventStream) -> None:
        if self._streams.get(url) is stream:
            del self._streams[url], self._used[url]
            if stream.error:
                self._rest_worker(url, stream.error)
        stream.ready.set()  # release requests that wait for the connection

    def _rest_worker(self, url: str, error: str) -> None:
        log.info("arrivals.not_told", url=url, error=error)
        self._resting[url] = clock.monotonic() + self._rest
