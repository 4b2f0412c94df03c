"""The worker's HTTP server: gateways and the engine's door announce synchronous requests to it, and Prometheus scrapes it.

POST /arrivals   one event a line, read as it arrives; empty lines keep it alive; the body ends with the sender
                 {"id", "event": "arrived", "class": "sync", "prompt_tokens", "max_tokens"}
                 {"id", "event": "first_token", "ttft_ms"}
                 {"id", "event": "finished", "output_tokens", "itl_p50_ms", "itl_p95_ms"}
                 {"event": "wake"}: work has come
GET  /metrics    Prometheus text
GET  /health     the process answers
"""

import asyncio
import hmac
from collections.abc import Callable
from typing import Any, Self

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import ValidationError

from app import processes
from app.crypto import accepted, bearer_token
from app.engines.engine_key import door_token
from app.headroom.arrivals import ANNOUNCING, Arrivals
from app.settings import Settings
from workers.gpu.arrival_events import ArrivalEvents


class HttpServer:
    """Feeds `arrivals`, calls `on_arrival` at once when a request is announced, and `on_wake` when work has come.

    Use as an async context manager.
    """

    def __init__(
        self,
        settings: Settings,
        secret: bytes,
        arrivals: Arrivals,
        *,
        on_arrival: Callable[[], None],
        on_wake: Callable[[], None] = lambda: None,
        metrics: Callable[[], str],
    ) -> None:
        self._settings = settings
        tokens = [
            token
            for each in accepted(secret)
            for token in (bearer_token(each, ANNOUNCING), door_token(each, settings.engine_name))
        ]
        self._expected = [f"Bearer {token}".encode() for token in tokens]
        self._events = ArrivalEvents(arrivals, on_arrival, on_wake)
        self._metrics = metrics
        self._reading: set[asyncio.Task[Any]] = set()
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/arrivals", self._post)
        app.router.add_get("/metrics", self._scrape)
        app.router.add_get("/health", self._health)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._settings.arrival_host, self._settings.arrival_port).start()
        self.url = self._settings.arrival_url or processes.address(
            self._settings.arrival_host, self._runner.addresses[0][1]
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._reading:
            task.cancel()
        await self._runner.cleanup()

    async def _post(self, request: web.Request) -> web.Response:
        given = request.headers.get("authorization", "").encode(errors="surrogateescape")
        if not any(hmac.compare_digest(given, expected) for expected in self._expected):
            return _refused(
                401, "the bearer token is not the one of this deployment, nor the one of this engine's door"
            )
        task = asyncio.current_task()
        assert task is not None
        self._reading.add(task)
        try:
            async for line in request.content:
                if line.strip():
                    self._events.take(line)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            return _refused(400, f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}")
        except LineTooLong as error:
            return _refused(413, str(error))
        except (aiohttp.ClientError, OSError):
            pass  # the sender has disconnected
        finally:
            self._reading.discard(task)
        return web.Response(status=204)

    async def _scrape(self, request: web.Request) -> web.Response:
        return web.Response(body=self._metrics().encode(), headers={"content-type": CONTENT_TYPE_LATEST})

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})


def _refused(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
