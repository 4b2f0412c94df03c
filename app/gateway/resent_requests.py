"""Calls that their client may send again while they run: what it sends again is answered by the call already under way.

A client hangs up before it sends again, so such a call goes on for a moment when nobody waits for it.
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
    """What the client says of a call: its idempotency key, and whether it may have sent it before."""

    key: str | None
    again: bool


@dataclass(eq=False, slots=True)
class _Running:
    item: Mapping[str, Any]
    answer: "asyncio.Task[bytes]"
    waiting: int = 0


class ResentRequests:
    """The calls of one process that may be sent again. Not a cache: an answer is forgotten once somebody was given it."""

    def __init__(self, work: Callable[[SyncCall], Coroutine[Any, Any, bytes]]) -> None:
        self._work = work
        self._running: dict[Hashable, list[_Running]] = {}

    async def answer(self, call: SyncCall, sending: Sending) -> bytes:
        """The answer of the same call, if that is under way, else of this one. Raises as `work` does."""
        place = (call.tenant_id, call.model.name, call.endpoint, call.open_ended, sending.key)
        running = self._same(place, call) if sending.again else None
        if running is None:
            running = _Running(call.item, asyncio.create_task(self._work(call)))
            self._running.setdefault(place, []).append(running)
        running.waiting += 1
        grace = GRACE_SECONDS
        try:
            found = await asyncio.shield(running.answer)
            grace = 0.0
        finally:
            running.waiting -= 1
            asyncio.get_running_loop().call_later(grace, self._forget, place, running)
        return found

    def _same(self, place: Hashable, call: SyncCall) -> _Running | None:
        found = (each for each in self._running.get(place, ()) if each.item == call.item and not _failed(each.answer))
        return next(found, None)

    def _forget(self, place: Hashable, running: _Running) -> None:
        """Unless somebody waits for it, or it was forgotten before."""
        if running.waiting:
            return
        running.answer.cancel()
        _failed(running.answer)  # nobody else hears of it
        with suppress(KeyError, ValueError):
            self._running[place].remove(running)
            if not self._running[place]:
                del self._running[place]


def _failed(answer: "asyncio.Task[bytes]") -> bool:
    return answer.done() and (answer.cancelled() or answer.exception() is not None)
