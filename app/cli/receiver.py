"""A small webhook receiver on the loopback interface that verifies signatures."""

import asyncio
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError

from app.sentences import ended
from app.user_errors import Failure


@dataclass(frozen=True)
class Received:
    """One webhook that arrived. `body` is the parsed JSON, or the bytes if they are not JSON."""

    body: Any
    headers: dict[str, str]
    verified: bool


class Receiver:
    """`async with Receiver() as receiver`: then give `receiver.url` to a subscription and set `receiver.secret`.

    `port` 0 takes any free port. A verified webhook is answered with `status`, any other with 401. Entering raises Failure.
    """

    def __init__(self, port: int = 0, status: int = 204) -> None:
        self.secret = ""
        self.received: asyncio.Queue[Received] = asyncio.Queue()
        self.url = ""
        self._port, self._status = port, status
        app = web.Application()
        app.router.add_post("/webhook", self._take)
        self._runner = web.AppRunner(app, access_log=None)

    async def __aenter__(self) -> "Receiver":
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise Failure(
                ended(f"Cannot listen: {error.strerror}"), "Choose another port; 0 takes any free one."
            ) from error
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/webhook"
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        raw = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        verified = self._verified(raw, headers)
        self.received.put_nowait(Received(_parsed(raw), headers, verified))
        return web.Response(status=self._status if verified else 401)

    def _verified(self, raw: bytes, headers: dict[str, str]) -> bool:
        try:
            Webhook(self.secret).verify(raw, headers)
        except (WebhookVerificationError, ValueError):
            return False
        return True


def _parsed(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return raw
