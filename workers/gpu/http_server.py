"""The HTTP server of a worker process: gateways and doors announce synchronous requests to it, and Prometheus scrapes it.

POST /arrivals                  one event a line, read as it arrives; empty lines keep it alive; the body ends with the sender
                                {"id", "event": "arrived", "class": "sync", "prompt_tokens", "max_tokens"}
                                {"id", "event": "first_token", "ttft_ms"}
                                {"id", "event": "finished", "output_tokens", "itl_p50_ms", "itl_p95_ms"}
                                {"event": "wake"}: work has come
                                other fields and other events are ignored
POST /engines/ENGINE/arrivals   the same, of a process that has several engines
GET  /metrics                   Prometheus text
GET  /live                      whether its loops still turn
GET  /health                    whether the process has a worker, or is a spare one that has read its list of engines
"""

import asyncio
import hmac
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import ValidationError

from app import processes
from app.crypto import accepted, bearer_token
from app.engines.engine_key import door_token
from app.headroom.arrivals import ANNOUNCING
from app.settings import Settings
from app.wrong_values import wrong
from workers import metrics_page
from workers.gpu.arrival_events import ArrivalEvents


@dataclass
class _Listener:
    """Who listens to the announcements for one engine, and the requests that bring them."""

    events: ArrivalEvents
    expected: list[bytes]
    reading: set[asyncio.Task[Any]] = field(default_factory=set)


class HttpServer:
    """Hands announcements to the workers of its process. Use as an async context manager."""

    def __init__(self, settings: Settings, secret: bytes, *, metrics: Callable[[], bytes]) -> None:
        self._settings = settings
        self._secret = secret
        self._metrics = metrics
        self._listeners: dict[str, _Listener] = {}
        self._url = ""
        self._stands_by = False

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/arrivals", self._post)
        app.router.add_post("/engines/{engine}/arrivals", self._post)
        app.router.add_get("/metrics", self._scrape)
        app.router.add_get("/live", metrics_page.live)
        app.router.add_get("/health", self._health)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._settings.arrival_host, self._settings.arrival_port).start()
        self._url = self._settings.arrival_url or processes.address(
            self._settings.arrival_host, self._runner.addresses[0][1]
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._runner.cleanup()

    @contextmanager
    def announced(self, engine: str, events: ArrivalEvents) -> Iterator[str]:
        """While the block runs, `events` gets what is announced for this engine, at the URL that is returned."""
        tokens = [
            token
            for each in accepted(self._secret)
            for token in (bearer_token(each, ANNOUNCING), door_token(each, engine))
        ]
        listener = _Listener(events, [f"Bearer {token}".encode() for token in tokens])
        self._listeners[engine] = listener
        try:
            yield f"{self._url}/engines/{quote(engine, safe='')}" if self._settings.engines else self._url
        finally:
            if self._listeners.get(engine) is listener:
                del self._listeners[engine]
            for task in listener.reading:
                task.cancel()

    def stand_by(self) -> None:
        """From now on `/health` is 200 without a worker, too. Otherwise a rolling update would wait for a new process to be
        ready, and that process for an engine of the old one.
        """
        self._stands_by = True

    async def _post(self, request: web.Request) -> web.Response:
        listener = self._listeners.get(request.match_info.get("engine", self._settings.engine_name))
        if listener is None:
            return _refused(404, "no worker of this process controls that engine")
        given = request.headers.get("authorization", "").encode(errors="surrogateescape")
        if not any(hmac.compare_digest(given, expected) for expected in listener.expected):
            return _refused(
                401, "the bearer token is not the one of this deployment, nor the one of this engine's door"
            )
        task = asyncio.current_task()
        assert task is not None
        listener.reading.add(task)
        try:
            async for line in request.content:
                if line.strip():
                    listener.events.take(line)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            return _refused(400, f"{'.'.join(str(part) for part in first['loc'])}: {wrong(first, secret=True)}")
        except LineTooLong as error:
            return _refused(413, str(error))
        except (aiohttp.ClientError, OSError):
            pass  # the sender has disconnected
        finally:
            listener.reading.discard(task)
        return web.Response(status=204)

    async def _scrape(self, request: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"content-type": CONTENT_TYPE_LATEST})

    async def _health(self, request: web.Request) -> web.Response:
        ready = bool(self._listeners) or self._stands_by
        return web.json_response({"status": "ok"}) if ready else _refused(503, "no engine yet")


def _refused(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
