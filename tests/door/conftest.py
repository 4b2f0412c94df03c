"""A door in front of a small application that notes what it gets, and an API that the door asks for keys."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from aiohttp import web

from workers.engine.door import Door
from workers.engine.door.keys import PATH
from workers.engine.door.settings import DoorSettings
from workers.engine.http_answer import Message, Receive, Scope, Send

TOKEN = "engine-0.aaaa"
CHAT = "/v1/chat/completions"
USAGE = b'{"prompt_tokens":11,"total_tokens":14,"completion_tokens":3}'


@dataclass
class Inner:
    """The application behind the door. `chunks`: its answer. `seen`: the requests that it got, each with its body."""

    chunks: tuple[bytes, ...] = (b'{"choices":[],"usage":' + USAGE + b"}",)
    kind: bytes = b"application/json"
    status: int = 200
    seen: list[tuple[dict[bytes, bytes], bytes]] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.kinds.append(scope["type"])
        if scope["type"] != "http":
            self.messages.append(await receive())
            return
        body, more = b"", True
        while more:
            message = await receive()
            self.messages.append(message)
            if message["type"] == "http.disconnect":
                break
            body, more = body + message.get("body", b""), message.get("more_body", False)
        assert len(dict(scope["headers"])) == len(scope["headers"]), "a header is sent on once"
        self.seen.append((dict(scope["headers"]), body))
        await send({"type": "http.response.start", "status": self.status, "headers": [(b"content-type", self.kind)]})
        for chunk in self.chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    @property
    def body(self) -> Any:
        """The last request's body."""
        return json.loads(self.seen[-1][1])

    @property
    def headers(self) -> dict[bytes, bytes]:
        """The last request's headers."""
        return self.seen[-1][0]


@dataclass
class KeyApi:
    """The API of Slackwater, as a door sees it. `keys`: the answer for each token."""

    keys: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    shown: set[str] = field(default_factory=set)
    status: int = 200
    url: str = ""
    worker: str | None = None

    async def answer(self, request: web.Request) -> web.Response:
        self.shown.add(request.headers["authorization"])
        questions = (await request.json())["keys"]
        self.asked += questions
        if self.status != 200:
            return web.Response(status=self.status)
        by_id = {entry["key_id"]: entry for entry in self.keys.values()}
        none: dict[str, Any] = {"account": None}
        found = [self.keys.get(q["token"], none) if "token" in q else by_id.get(q["key_id"], none) for q in questions]
        return web.json_response({"keys": found, "worker": self.worker})


@pytest.fixture
async def api() -> AsyncIterator[KeyApi]:
    api = KeyApi({"sk_sw_good": {"key_id": "good", "account": "acme"}})
    app = web.Application()
    app.router.add_post(PATH, api.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield api
    await runner.cleanup()


@pytest.fixture
def inner() -> Inner:
    return Inner()


def client_of(door: Door, **headers: str) -> httpx.AsyncClient:
    """A client whose requests go through the door without a server."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=door), base_url="http://engine", headers=headers)


@pytest.fixture
async def door(inner: Inner) -> Door:
    """A door without keys."""
    return Door(inner, DoorSettings(token=TOKEN))


@pytest.fixture
async def keyed(inner: Inner, api: KeyApi) -> AsyncIterator[Door]:
    """A door that asks the API for keys."""
    door = Door(inner, DoorSettings(token=TOKEN, api=api.url, engine_key="inner"))
    yield door
    assert door._keys is not None
    await door._keys.close()
