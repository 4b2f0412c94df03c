"""Fake engines that record every request, and a webhook receiver that records every event."""

import asyncio
import random
import time
from typing import Any

from aiohttp import web
from standardwebhooks import Webhook

from app.sessions import transcript
from testing.fakes.completion import prompt_of
from testing.fakes.engine import FakeEngine
from tests.crash.history import Arrival, History
from tests.crash.part import SENDER, SENT

REFUSAL = "refused as scripted"
DOOMED_SECONDS = 0.7
DOOMED = "doomed"  # prefix of the names of endpoints that will be deleted


class LoggedEngine(FakeEngine):
    """Treats an item by the word in its prompt, and records the sender, the prompt and the time of each request."""

    def __init__(self, name: str, history: History, rng: random.Random) -> None:
        super().__init__(latency=0.03, slots=64)
        self._name = name
        self._history = history
        self._rng = rng
        self._stumbled: set[str] = set()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        at = time.time()
        sent, sender = request.headers.get(SENT, "0"), request.headers.get(SENDER, "0")
        prompt = prompt_of(await request.json())
        self._history.arrivals.append(Arrival(at, float(sent), int(sender), self._name, prompt))
        self.bodies.clear()
        return await super()._complete(request)

    async def _note(self, request: web.Request) -> dict[str, Any]:
        body = await super()._note(request)
        self._history.contexts.append(tuple(map(text_of, transcript.as_items(body["input"]))))
        self.bodies.clear()
        return body

    def _rule(self, text: str) -> dict[str, Any]:
        if "refuse" in text:
            return {"mode": "status", "status": 400, "message": REFUSAL}
        if "flaky" in text and text not in self._stumbled:
            self._stumbled.add(text)
            return {"mode": "status", "status": 500}
        if "slow" in text:
            return {"mode": "slow", "seconds": self._rng.uniform(0.5, 2.5)}
        return {"mode": "slow", "seconds": 0.01 + self._rng.expovariate(1 / 0.08)}


def text_of(item: dict[str, Any]) -> str:
    """The text of a message of the Responses API."""
    content = item["content"]
    return str(content if isinstance(content, str) else content[0]["text"])


class Receiver:
    """Receives webhooks at `/<name>` and checks the signature with the secret of that name."""

    def __init__(self, history: History) -> None:
        self.secrets: dict[str, str] = {}
        self.url = ""
        self._history = history
        app = web.Application()
        app.router.add_post("/{name}", self._take)
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self) -> None:
        """Listen on the loopback interface."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def close(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        raw, name = await request.read(), request.match_info["name"]
        if name not in self.secrets:  # the client does not have the secret yet
            return web.Response(status=204 if name.startswith(DOOMED) else 503)
        headers = {name.lower(): value for name, value in request.headers.items()}
        body: Any = Webhook(self.secrets[name]).verify(raw, headers)
        if name.startswith(DOOMED):
            return await self._take_doomed(name, body["type"])
        self._history.webhooks.append((headers["webhook-id"], body["type"], body["payload"]["requestId"]))
        return web.Response(status=204)

    async def _take_doomed(self, name: str, kind: str) -> web.Response:
        """Respond slowly and refuse every second event, so that a deletion meets attempts in flight and retries."""
        self._history.doomed.append((name, time.time()))
        await asyncio.sleep(DOOMED_SECONDS)
        refused = len(self._history.doomed) % 2 and not kind.endswith(".test")
        return web.Response(status=500 if refused else 204)
