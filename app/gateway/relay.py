"""The relay: sends one synchronous request to a ready engine, and returns its answer whole or as a stream.

While every engine is full, or one is expected back in time, a request waits in a queue for at most `line_seconds`. If the
first engine cannot be reached, is misconfigured, has no room or is lost before its answer begins, the request is sent to
another engine once. If an engine is lost later, the caller gets an error. `routing` chooses among the engines.
"""

import math
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeVar

import aiohttp

from app import clock, off_loop
from app.budgets.calls import CallBudgets, CallSize
from app.crypto import bearer_token
from app.db.pool import Database
from app.engines import embeddings
from app.engines.catalogue import Model
from app.engines.engine_key import engine_headers
from app.engines.outcome import UNREADABLE, unreadable, usage_of
from app.engines.requests import CHAT, EMBEDDINGS, EngineRequest, Target, build, tenant_salt
from app.engines.service import Engine
from app.errors import NoCapacity, SlackwaterError
from app.gateway import call_span, sse_frames
from app.gateway.announcer import Announcer
from app.gateway.call_bill import Books, CallBill, SentBody
from app.gateway.call_span import CallSpan
from app.gateway.engine_attempt import EngineAttempt, attempt_at
from app.gateway.engine_directory import EngineDirectory
from app.gateway.engine_response import (
    Begin,
    NotBegun,
    another_may_succeed,
    begun_by,
    failure_of,
    is_unreachable,
    outcome_of,
    read_first_event,
    read_whole,
)
from app.gateway.metrics import ERRORS, SYNC
from app.gateway.request_timer import RequestTimer
from app.gateway.routing import Balance
from app.gateway.sse_frames import SseEvent
from app.gateway.wait_queue import WaitQueue
from app.gateway.waker import Waker
from app.headroom.arrivals import ANNOUNCING
from app.metering.latency import MinuteLatencies
from app.metering.lines import LineParts
from app.metering.sync_usage import SyncUsage
from app.quantities import duration
from app.settings import Settings
from app.tracing.span import Origin

CONNECT_SECONDS = 2.0
# A connection that was idle for longer is not reused. vLLM closes idle ones after 5 seconds, and a request sent then is lost.
IDLE_SECONDS = 2.0
RETRY_SECONDS = 10  # Retry-After when it is unknown when an engine will be ready
_ENGINES_TRIED = 2  # counts only engines that were reached

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SyncCall:
    """A valid synchronous request. `item` is the caller's body. The token counts are estimates; `answer_tokens` is a maximum.

    `hurried`: refuse it at once instead of letting it wait in the queue. `open_ended`: see `build`. `line`: where its usage is
    booked; None: nowhere. `size`: what its budgets reserve; None: nothing. `origin`: its span; None: no
    spans are recorded.
    """

    model: Model
    item: Mapping[str, Any]
    tenant_id: int
    prompt_tokens: int
    answer_tokens: int
    session: str | None = None
    endpoint: str = CHAT
    hurried: bool = False
    open_ended: bool = False
    traceparent: str | None = None
    line: LineParts | None = None
    size: CallSize | None = None
    origin: Origin | None = None


class Gateway:
    """Relays calls. Use as an async context manager."""

    def __init__(self, settings: Settings, database: Database, secret: bytes) -> None:
        self._settings = settings
        self._secret = secret
        self._directory = EngineDirectory(database, settings.gateway_refresh_seconds)
        self._balance = Balance()
        self._queue = WaitQueue()
        self._announcer = Announcer(bearer_token(secret, ANNOUNCING), rest_seconds=settings.announce_rest_seconds)
        self._waker = Waker(database, self._directory, self._announcer)
        self._session: aiohttp.ClientSession | None = None
        self.usage = SyncUsage(database)
        self._books = Books(self.usage, secret)
        self.latencies = MinuteLatencies(database)
        self.budgets = CallBudgets(database)

    async def __aenter__(self) -> Self:
        await self._announcer.__aenter__()
        await self._waker.__aenter__()
        headers = {"content-type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=self._settings.request_timeout_seconds, sock_connect=CONNECT_SECONDS)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS)
        jar = aiohttp.DummyCookieJar()  # an engine's cookies must not reach another caller
        self._session = aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout, cookie_jar=jar)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._session is not None
        await self._session.close()
        await self._waker.__aexit__()
        await self._announcer.__aexit__()

    async def complete(self, call: SyncCall) -> bytes:
        """The engine's answer, verbatim, but vectors in base64 if that was asked for. Raises SlackwaterError.

        Cancelling the call makes the engine abort the request. The answer is not streamed, so the time to its first token is
        not known.
        """
        timer, read = (
            RequestTimer(call.model.served, streamed=False),
            partial(read_whole, prompt_tokens=call.prompt_tokens),
        )
        async with (
            _spanning(call, streamed=False) as span,
            self.budgets.reserving(call.line, call.size) as reserved,
            self._begun(bill := CallBill(self._books, call, timer, reserved, streamed=False), span, read) as (
                attempt,
                done,
            ),
        ):
            attempt.answered(None)
            span.used(done.usage)
            timer.output_tokens = done.usage.completion_tokens
            timer.end()
            bill.settle(done.usage)
            if call.endpoint == EMBEDDINGS and embeddings.wants_base64(call.item):
                return await off_loop.done(done.body, embeddings.in_base64, done.body)
            return done.body

    async def stream(self, call: SyncCall) -> AsyncGenerator[SseEvent, None]:
        """The engine's events. If the stream breaks off, the last event is an error. Closing it makes the engine abort.

        Raises SlackwaterError if there is no first event. The time to first token (TTFT) is measured here, by RequestTimer.
        """
        timer, usage = RequestTimer(call.model.served, streamed=True), None
        async with (
            _spanning(call, streamed=True) as span,
            self.budgets.reserving(call.line, call.size) as reserved,
            self._begun(
                bill := CallBill(self._books, call, timer, reserved, streamed=True), span, read_first_event
            ) as (
                attempt,
                (first, rest),
            ),
        ):
            try:
                event: SseEvent | None = first
                while event is not None:
                    if (failed := failure_of(event)) is not None:
                        raise attempt.failed(failed)
                    if event.usage:
                        usage = usage_of({"usage": event.usage})
                        timer.output_tokens = usage.completion_tokens if usage else timer.output_tokens
                    if event.carries_tokens and (ttft_ms := timer.token()) is not None:
                        attempt.answered(ttft_ms)
                        span.token()
                    yield event
                    event = await anext(rest, None)
            except SlackwaterError as error:
                failure = error
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                failure = attempt.lost(error)
            except UNREADABLE as error:
                failure = attempt.failed(unreadable(error))
            else:
                timer.end()
                return
            finally:
                span.used(usage)
                bill.settle(usage)
                self._time(call, timer, attempt)
            span.failed(failure)
            yield sse_frames.failed(failure)

    def _time(self, call: SyncCall, timer: RequestTimer, attempt: EngineAttempt) -> None:
        """Count how long the tokens of a stream took."""
        if timer.first_token_ms is not None:
            beside = attempt.engine.batch_in_flight > 0
            self.latencies.add(call.model.served, beside=beside, first_token_ms=timer.first_token_ms, gaps=timer.gaps)

    @asynccontextmanager
    async def _begun(
        self, bill: CallBill[SyncCall], span: CallSpan, begin: Begin[T]
    ) -> AsyncIterator[tuple[EngineAttempt, T]]:
        """Send the request to an engine, and let `begin` read the start of its answer. Until that succeeds, another engine
        may be tried once. Whatever becomes of it, it is metered. Raises SlackwaterError.
        """
        assert self._session is not None
        call, tokens = bill.call, (bill.call.prompt_tokens, bill.call.answer_tokens)
        refusal: SlackwaterError | None = None
        tried: set[str] = set()
        reached, until = 0, clock.monotonic() + (0 if call.hurried else self._settings.line_seconds)
        with bill:
            while reached < _ENGINES_TRIED and (chosen := await self._choose_engine(call, tried, until)):
                [engine] = chosen
                tried.add(engine.name)
                span.sent(engine.name)
                async with attempt_at(
                    engine, self._balance, self._queue, self._announcer, bill.timer, *tokens
                ) as attempt:
                    request = await off_loop.done(call.item, partial(self._request, stream=bill.streamed), call, engine)
                    begun = False
                    try:
                        headers, url = self._headers(call, engine), engine.url + request.route
                        body = SentBody(request.body, bill.sent)
                        post = self._session.post(url, data=body, headers=headers, allow_redirects=False)
                        async with post as response:
                            found = await begun_by(response, begin)
                            begun = True
                            yield attempt, found
                            return
                    except (NotBegun, aiohttp.ClientError, TimeoutError, OSError, *UNREADABLE) as error:
                        if begun:
                            raise
                        outcome = outcome_of(error)
                        bill.failed(outcome)
                    refusal = attempt.failed(outcome, request.route)
                if is_unreachable(outcome):
                    self._balance.avoid(engine.name)
                else:
                    reached += 1
                if not another_may_succeed(outcome):
                    raise refusal
            raise refusal or await self._no_engine(call.model)

    async def _choose_engine(self, call: SyncCall, tried: Set[str], until: float) -> Sequence[Engine]:
        """The best untried engine with room. Waits for one until `until`; empty if there is none by then."""
        served = call.model.served
        session = call.session and f"{call.tenant_id} {call.session}"

        async def find() -> Sequence[Engine]:
            known = await self._directory.served(served)
            if known.ready.keys() <= tried and await self._directory.should_give_up(served, until - clock.monotonic()):
                raise await self._no_engine(call.model)
            best = self._balance.choose(known.fleet, session, tried)
            return [known.ready[best]] if best is not None else ()

        async def patience() -> float:
            return until - clock.monotonic() if await self._directory.has_untried(served, tried) else 0

        return await self._queue.wait(served, find, patience, again=bool(tried))

    async def _no_engine(self, model: Model) -> SlackwaterError:
        """The error for a caller whose request no engine had room for."""
        if (await self._directory.served(model.served)).ready:
            ERRORS.labels(SYNC, model.served, "busy").inc()
            return NoCapacity("Capacity temporarily exceeded, please try again.")
        ERRORS.labels(SYNC, model.served, "no_engine").inc()
        expected = await self._directory.expected(model.served)
        when = f"; one is expected in about {duration(expected)}" if expected is not None else ""
        others = await self._directory.ready_models()
        instead = f", or use a model that is served now: {', '.join(others)}" if others else ""
        message = f"No engine is ready to serve {model.name} right now{when}; please try again{instead}."
        return NoCapacity(message, status=503, retry_after=RETRY_SECONDS if expected is None else math.ceil(expected))

    def _headers(self, call: SyncCall, engine: Engine) -> dict[str, str]:
        shown = engine_headers(self._settings, self._secret, engine.name, engine.mode)
        return {**call_span.headers(call.origin, call.traceparent), **shown}

    def _request(self, call: SyncCall, engine: Engine, *, stream: bool) -> EngineRequest:
        target = replace(Target.of(call.model), model=engine.request_model, terms=engine.terms)
        salt = tenant_salt(self._secret, call.tenant_id)
        return build(
            call.item,
            call.endpoint,
            target,
            salt,
            synchronous=True,
            stream=stream,
            open_ended=call.open_ended,
        )


def _spanning(call: SyncCall, *, streamed: bool) -> AbstractAsyncContextManager[CallSpan]:
    workflow = call.line.workflow if call.line else None
    return call_span.spanning(call.origin, call.model.name, call.endpoint, workflow, streamed=streamed)
