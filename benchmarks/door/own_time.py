"""The door's own processor time until the first token of a request, which other load on the machine hardly changes."""

import asyncio
from collections.abc import MutableMapping
from time import thread_time_ns
from typing import Any

from benchmarks.statistics import percentiles
from workers.engine.door import Door
from workers.engine.door.settings import DoorSettings

HEADERS = [
    (b"host", b"engine:8000"),
    (b"content-type", b"application/json"),
    (b"accept", b"*/*"),
    (b"user-agent", b"x"),
]
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"token"}}]}\n\n'


class _Caller:
    """One request without a server. `first`: processor time until the first token was sent."""

    def __init__(self, body: bytes, key: str) -> None:
        self._message: dict[str, Any] | None = {"type": "http.request", "body": body, "more_body": False}
        headers = [*HEADERS, (b"content-length", b"%d" % len(body)), (b"authorization", f"Bearer {key}".encode())]
        self.scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": headers}
        self._began = thread_time_ns()
        self.first = 0

    async def receive(self) -> MutableMapping[str, Any]:
        message, self._message = self._message, None
        assert message is not None
        return message

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if not self.first and message.get("body"):
            self.first = thread_time_ns() - self._began


async def _shutdown() -> MutableMapping[str, Any]:
    return {"type": "lifespan.shutdown"}


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    if scope["type"] == "lifespan":
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for _ in range(8):
        await send({"type": "http.response.body", "body": EVENT, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def own_time(settings: DoorSettings, key: str, body: bytes, rounds: int) -> dict[str, float]:
    """Milliseconds that the door adds: median, and difference of the 99th percentiles."""
    door = Door(_answer, settings)
    found: tuple[list[float], list[float]] = [], []
    for number in range(rounds + 100):
        for app, values in zip((_answer, door), found, strict=True):
            caller = _Caller(body, key)
            await app(caller.scope, caller.receive, caller.send)
            if number >= 100:
                values.append(caller.first / 1e6)
        if not number % 50:
            await asyncio.sleep(0)  # lets the renewal of the key run
    await door({"type": "lifespan"}, _shutdown, _Caller(b"", key).send)
    (bare50, bare99), (door50, door99) = map(percentiles, found)
    assert not door.usage.faults
    return {"p50_ms": round(door50 - bare50, 4), "p99_ms": round(door99 - bare99, 4)}
