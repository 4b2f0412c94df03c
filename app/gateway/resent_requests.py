"""Joins a call that a client sends again to the same call that is still running, so that the engine runs it once.

A client disconnects before it sends again, so a call keeps running for a moment without a waiting client.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from app.gateway.relay import SyncCall

GRACE_SECONDS = 2.0  # OpenAI's and Cloudflare's clients send again within one second


@dataclass(frozen=True, slots=True)
class Sending:
    """From a call's headers: its idempotency key, and whether the client may have sent it before (`again`)."""

    key: str | None
    again: bool


@dataclass(eq=False, slots=True)
class _Running:
    item: Mapping[str, Any]
    answer: "asyncio.Task[bytes]"
    waiting: int = 0


class ResentRequests:
    """The running calls of one process. Not a cache: an answer is dropped when a client has received it."""

    def __init__(self, work: Callable[[SyncCall], Coroutine[Any, Any, bytes]]) -> None:
        self._work = work
        self._running: dict[Hashable, list[_Running]] = {}

    async def answer(self, call: SyncCall, sending: Sending) -> bytes:
        """The answer of the same call if it is running, else of this one. Raises the errors of `work`."""
        identity = (call.tenant_id, call.model.name, call.endpoint, call.open_ended, sending.key)
        running = self._same(identity, call) if sending.again else None
        if running is None:
            running = _Running(call.item, asyncio.create_task(self._work(call)))
            self._running.setdefault(identity, []).append(running)
        running.waiting += 1
        grace = GRACE_SECONDS
        try:
            found = await asyncio.shield(running.answer)
            grace = 0.0
        finally:
            running.waiting -= 1
            asyncio.get_running_loop().call_later(grace, self._forget, identity, running)
        return found

    def _same(self, identity: Hashable, call: SyncCall) -> _Running | None:
        found = (
            each for each in self._running.get(identity, ()) if each.item == call.item and not _failed(each.answer)
        )
        return next(found, None)

    def _forget(self, identity: Hashable, running: _Running) -> None:
        """Cancel and drop a call, unless a client waits for it. May be called again."""
        if running.waiting:
            return
        running.answer.cancel()
        _failed(running.answer)  # marks its exception as retrieved
        with suppress(KeyError, ValueError):
            self._running[identity].remove(running)
            if not self._running[identity]:
                del self._running[identity]


def _failed(answer: "asyncio.Task[bytes]") -> bool:
    return answer.done() and (answer.cancelled() or answer.exception() is not None)
