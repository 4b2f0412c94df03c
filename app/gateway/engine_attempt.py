"""One try of one request at one engine: what its worker is told of it, and what its failure means for the caller."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import structlog

from app.engines.context_window import TOO_LONG, is_too_long
from app.engines.outcome import TIMED_OUT, EngineDown, Outcome, Reject, Retry
from app.engines.service import Engine
from app.errors import BadInput, ExecutionFailed, NoCapacity, SlackwaterError, TimedOut
from app.gateway.announcer import Announcer
from app.gateway.metrics import ERRORS, OPEN, SYNC
from app.gateway.request_timer import RequestTimer
from app.gateway.routing import Balance
from app.gateway.wait_queue import WaitQueue

log = structlog.get_logger("gateway")


class EngineAttempt:
    """Made by `entered`."""

    def __init__(self, engine: Engine, announcer: Announcer, watch: RequestTimer) -> None:
        self.engine = engine
        self._announcer = announcer
        self._watch = watch
        self._id = uuid.uuid4().hex

    async def arrived(self, prompt_tokens: int, answer_tokens: int) -> None:
        """Announce the request before it is sent."""
        size = {"prompt_tokens": prompt_tokens, "max_tokens": answer_tokens}
        await self._announcer.announce(self.engine.arrival_url, {**self._said("arrived"), "class": SYNC, **size})

    def answered(self, ttft_ms: float | None) -> None:
        """Its first token has come, `ttft_ms` after the request where that is known."""
        self._announcer.mention(self.engine.arrival_url, {**self._said("first_token"), "ttft_ms": ttft_ms})

    def finished(self) -> None:
        """It is over, whichever way."""
        watch = self._watch
        gaps = {"itl_p50_ms": watch.itl_ms(0.5), "itl_p95_ms": watch.itl_ms(0.95)}
        said = {**self._said("finished"), "output_tokens": watch.output_tokens, **gaps}
        self._announcer.mention(self.engine.arrival_url, said)

    def failed(self, outcome: Outcome) -> SlackwaterError:
        """What to tell the caller of an engine's answer that is none."""
        match outcome:
            case Reject(message=message, param=param):
                reason = TOO_LONG if is_too_long(message) else None
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
            case EngineDown(reason=reason):
                log.warning("engine.lost", engine=self.engine.name, error=reason)
                return self._counted("lost", ExecutionFailed(f"Model execution failed: {reason}"))
            case _:
                reason = getattr(outcome, "reason", "")
                log.warning("engine.failed", engine=self.engine.name, error=reason)
                return self._counted("broken", ExecutionFailed(f"Model execution failed: {reason}"))

    def lost(self, error: Exception) -> SlackwaterError:
        """What to tell the caller of an answer that broke off."""
        if isinstance(error, TimeoutError):
            return self._counted("timeout", TimedOut("Request timeout"))
        log.warning("engine.lost", engine=self.engine.name, error=repr(error))
        return self._counted(
            "lost", ExecutionFailed("Model execution failed: the engine was lost before its answer was complete")
        )

    def abandoned(self) -> None:
        """The caller has gone."""
        ERRORS.labels(SYNC, self.engine.model, "caller_gone").inc()

    def _counted(self, kind: str, error: SlackwaterError) -> SlackwaterError:
        ERRORS.labels(SYNC, self.engine.model, kind).inc()
        return error

    def _said(self, event: str) -> dict[str, Any]:
        return {"id": self._id, "event": event}


@asynccontextmanager
async def entered(
    engine: Engine,
    balance: Balance,
    line: WaitQueue,
    announcer: Announcer,
    watch: RequestTimer,
    prompt_tokens: int,
    answer_tokens: int,
) -> AsyncIterator[EngineAttempt]:
    """A request to this engine: counted, announced, and said to be over on leaving the block."""
    exchange = EngineAttempt(engine, announcer, watch)
    balance.enter(engine.name)
    OPEN.labels(SYNC, engine.model).inc()
    try:
        await exchange.arrived(prompt_tokens, answer_tokens)
        yield exchange
    except (asyncio.CancelledError, GeneratorExit):
        exchange.abandoned()
        raise
    finally:
        balance.leave(engine.name)
        line.wake(engine.model)
        OPEN.labels(SYNC, engine.model).dec()
        exchange.finished()
