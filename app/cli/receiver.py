"""A small webhook receiver on the loopback interface that verifies what it gets."""

import asyncio
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError


@dataclass(frozen=True)
class Received:
    """One webhook that arrived."""

    body: dict[str, Any]
    headers: dict[str, str]
    verified: bool


class Receiver:
    """`async with Receiver() as receiver`: then give `receiver.url` to a subscription and set `receiver.secret`."""

    def __init__(self) -> None:
        self.secret = ""
        self.received: asyncio.Queue[Received] = asyncio.Queue()
        self.url = ""
        app = web.Application()
        app.router.add_post("/webhook", self._take)
        self._runner = web.AppRunner(app, access_log=None)

    async def __aenter__(self) -> "Receiver":
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/webhook"
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        raw = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            Webhook(self.secret).verify(raw, headers)
            verified = True
        except (WebhookVerificationError, ValueError):
            verified = False
        self.received.put_nowait(Received(orjson.loads(raw), headers, verified))
        return web.Response(status=204 if verified else 401)
