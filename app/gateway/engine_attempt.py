"""One attempt to send a request to an engine: the events for its worker, and the errors for its caller."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import structlog

from app.engines.context_window import is_too_long
from app.engines.outcome import TIMED_OUT, Done, Doubt, EngineDown, Outcome, Reject, Retry
from app.engines.service import Engine
from app.errors import BadInput, ExecutionFailed, NoCapacity, SlackwaterError, TimedOut
from app.gateway.announcer import Announcer
from app.gateway.metrics import ERRORS, OPEN, SYNC
from app.gateway.request_timer import RequestTimer
from app.gateway.routing import Balance
from app.gateway.wait_queue import WaitQueue
from app.openai_codes import OpenAICode

log = structlog.get_logger("gateway")


class EngineAttempt:
    """One request at one engine. Created by `attempt_at`."""

    def __init__(self, engine: Engine, announcer: Announcer, timer: RequestTimer) -> None:
        self.engine = engine
        self._announcer = announcer
        self._timer = timer
        self._id = f"{random.getrandbits(128):032x}"

    async def arrived(self, prompt_tokens: int, answer_tokens: int) -> None:
        """Announce the request to the worker, before it is sent to the engine."""
        size = {"prompt_tokens": prompt_tokens, "max_tokens": answer_tokens}
        await self._announcer.announce(self.engine.arrival_url, {**self._event("arrived"), "class": SYNC, **size})

    def answered(self, ttft_ms: float | None) -> None:
        """Report that the answer has begun. `ttft_ms`: time to first token, None if not known."""
        self._announcer.report(self.engine.arrival_url, {**self._event("first_token"), "ttft_ms": ttft_ms})

    def finished(self) -> None:
        """Report that the request is over, for whatever reason."""
        timer = self._timer
        gaps = {"itl_p50_ms": timer.itl_ms(0.5), "itl_p95_ms": timer.itl_ms(0.95)}
        event = {**self._event("finished"), "output_tokens": timer.output_tokens, **gaps}
        self._announcer.report(self.engine.arrival_url, event)

    def failed(self, outcome: Outcome, route: str = "") -> SlackwaterError:
        """The caller's error for a failed outcome of a request on this route."""
        match outcome:
            case Doubt():
                return self._doubted(outcome, route)
            case Reject(message=message, param=param):
                reason = OpenAICode.TOO_LONG if is_too_long(message) else None
                return self._counted("refused", BadInput(message, param=param, reason=reason))
            case Retry(busy=True):
                return self._counted("busy", NoCapacity("Capacity temporarily exceeded, please try again."))
            case Retry(code=code) if code == TIMED_OUT:
                return self._counted("timeout", TimedOut("Request timeout"))
            case EngineDown(reason=reason, suspect=False):
                log.warning("engine.unreachable", engine=self.engine.name, error=reason)
                return self._counted(
                    "unreachable", NoCapacity("The engine cannot be reached now, please try again.", status=503)
                )
            case EngineDown(reason=reason, message=message) | Retry(reason=reason, message=message):
                kind = "lost" if isinstance(outcome, EngineDown) else "broken"
                log.warning("engine.lost" if kind == "lost" else "engine.failed", engine=self.engine.name, error=reason)
                return self._counted(kind, ExecutionFailed(f"Model execution failed: {message}"))
            case Done():
                raise TypeError("an answer is no failure")

    def _doubted(self, doubt: Doubt, route: str) -> SlackwaterError:
        """Nobody asks the engine whether it is its fault, so the caller reads what came."""
        log.warning("engine.doubted", engine=self.engine.name, error=doubt.reason)
        if doubt.refuses_key:
            return self._counted("unreachable", NoCapacity(f"The engine refuses our key ({doubt.reason}).", status=503))
        if (message := doubt.lacks(route)) is not None:
            return self._counted("refused", BadInput(message))
        return self._counted("broken", ExecutionFailed(f"Model execution failed: {doubt.message}"))

    def lost(self, error: Exception) -> SlackwaterError:
        """The caller's error for an answer that broke off."""
        if isinstance(error, TimeoutError):
            return self._counted("timeout", TimedOut("Request timeout"))
        log.warning("engine.lost", engine=self.engine.name, error=repr(error))
        return self._counted(
            "lost", ExecutionFailed("Model execution failed: the engine was lost before its answer was complete")
        )

    def abandoned(self) -> None:
        """Count that the caller has disconnected."""
        ERRORS.labels(SYNC, self.engine.model, "caller_gone").inc()

    def _counted(self, kind: str, error: SlackwaterError) -> SlackwaterError:
        ERRORS.labels(SYNC, self.engine.model, kind).inc()
        return error

    def _event(self, name: str) -> dict[str, Any]:
        return {"id": self._id, "event": name}


@asynccontextmanager
async def attempt_at(
    engine: Engine,
    balance: Balance,
    queue: WaitQueue,
    announcer: Announcer,
    timer: RequestTimer,
    prompt_tokens: int,
    answer_tokens: int,
) -> AsyncIterator[EngineAttempt]:
    """A request to this engine. It is counted and announced on entry, and reported as finished on exit."""
    attempt = EngineAttempt(engine, announcer, timer)
    balance.enter(engine.name)
    OPEN.labels(SYNC, engine.model).inc()
    try:
        await attempt.arrived(prompt_tokens, answer_tokens)
        yield attempt
    except (asyncio.CancelledError, GeneratorExit):
        attempt.abandoned()
        raise
    finally:
        balance.leave(engine.name)
        queue.wake(engine.model)
        OPEN.labels(SYNC, engine.model).dec()
        attempt.finished()
