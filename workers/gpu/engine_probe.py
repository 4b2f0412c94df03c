"""Finds out whether an engine can be used: by a one-token request, on a route that it is known to serve.

It is asked when an answer leaves that in doubt. One request serves all that were in doubt before it was sent, and so does the
whole answer to anybody's request that was sent after the doubt.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from app import clock
from app.engines.outcome import Done, Doubt, EngineDown, Outcome, Reject, Retry
from app.engines.requests import EngineRequest, Target, probe_request, probe_routes
from workers.gpu.tuning import TUNING

_AWAY = 503

log = structlog.get_logger()


class Probed(Protocol):
    """What sends the request: an EngineClient."""

    async def probe(self, request: EngineRequest) -> Outcome:
        """The outcome of a one-token request."""


class EngineProbe:
    """One engine's. At most one request in `pause_seconds`."""

    def __init__(
        self,
        client: Probed,
        target: Callable[[], Target],
        pause_seconds: float = TUNING.probe_pause_seconds,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._target = target
        self._pause = pause_seconds
        self._sleep = sleep
        self._lock = asyncio.Lock()
        self._may_send_at = -math.inf
        self._answered_at = -math.inf  # when the newest request was sent that was answered
        self._last: tuple[float, EngineDown | Retry | None] = (
            -math.inf,
            None,
        )  # when it was sent, and what it has shown
        self._served: set[str] = set()

    def serves(self, route: str) -> bool:
        """Whether the engine has answered on this route."""
        return route in self._served

    def answered(self, route: str, sent_at: float) -> None:
        """A request on this route, sent at this monotonic second, was answered."""
        self._served.add(route)
        self._answered_at = max(self._answered_at, sent_at)

    async def failure(self, since: float) -> EngineDown | Retry | None:
        """Why the engine cannot be used, as of a request that was sent after this monotonic second. None: it can. Retry: it does
        not answer in time, so that nothing is known.
        """
        async with self._lock:
            if self._answered_at >= since:
                return None
            if self._last[0] < since:
                await self._sleep(max(0.0, self._may_send_at - clock.monotonic()))
                sent_at = clock.monotonic()
                self._may_send_at = sent_at + self._pause
                self._last = sent_at, await self._ask()
            return self._last[1]

    async def _ask(self) -> EngineDown | Retry | None:
        """A route that is missing says nothing about the engine while it serves another."""
        target, outcome = self._target(), None
        routes = probe_routes(target)
        for route in sorted(routes, key=lambda route: (route not in self._served, routes.index(route))):
            sent_at = clock.monotonic()
            outcome = await self._client.probe(probe_request(target, route))
            if isinstance(outcome, Doubt) and outcome.lacks(route):
                self._served.discard(route)
                continue
            if isinstance(outcome, Done):
                self.answered(route, sent_at)
            break
        failure = None if outcome is None else _failure(outcome)
        log.info("engine.probed", failure=None if failure is None else failure.reason)
        return failure


def _failure(outcome: Outcome) -> EngineDown | Retry | None:
    """What the outcome of a one-token request says. An engine that refuses it, or is full, is there and knows us. But one that
    answers it 503 has no room for anybody, or nobody knows that it has: its operator shall see that.
    """
    match outcome:
        case Done() | Reject():
            return None
        case Retry(busy=True) if outcome.status != _AWAY:
            return None
        case Retry(unanswered=True):
            return outcome
        case Retry() | Doubt():
            return EngineDown(f"a one-token request fails: {outcome.reason}", suspect=False, refusal=outcome)
        case EngineDown():
            return EngineDown(outcome.reason, suspect=False, refusal=Retry(outcome.reason))
