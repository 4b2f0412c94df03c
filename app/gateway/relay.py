"""The relay: one synchronous request to one ready engine, whole or as a stream.

While every engine is full, or one is expected back in time, a request waits in line, as long as its caller has patience.
Until an engine has begun to answer, another one may take the request, once: where the first cannot be reached, is
misconfigured, has no room or is lost. After that a lost engine is an error.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import aiohttp
import orjson

from app import clock, trace_context
from app.crypto import bearer_token
from app.db.pool import Database
from app.engines.catalogue import Model
from app.engines.engine_key import engine_key
from app.engines.outcome import TIMED_OUT, Done, EngineDown, Outcome, Retry, from_response
from app.engines.requests import CHAT, SYNC_PRIORITY, EngineRequest, Target, build, tenant_salt
from app.engines.service import Engine
from app.errors import NoCapacity, SlackwaterError
from app.gateway import sse_frames
from app.gateway.announcer import Announcer
from app.gateway.engine_attempt import EngineAttempt, entered
from app.gateway.engine_directory import EngineDirectory
from app.gateway.metrics import ERRORS, SYNC
from app.gateway.request_timer import RequestTimer
from app.gateway.routing import Balance
from app.gateway.sse_frames import Splitter, SseEvent
from app.gateway.wait_queue import WaitQueue
from app.headroom import reason_messages
from app.headroom.arrivals import ANNOUNCING
from app.settings import Settings

CONNECT_SECONDS = 2.0
# A connection idle for longer is not used again: vLLM closes it after 5 seconds, and no request may be lost on one just closed.
IDLE_SECONDS = 2.0
_END_SECONDS = 0.05
RETRY_SECONDS = 10  # after which a caller may ask again where nobody knows when an engine will be there
_ENGINES_TRIED = 2  # of those that were reached
_SMALL_BYTES = 256 * 1024  # is parsed in less time than other requests would notice

T = TypeVar("T")
Begin = Callable[[aiohttp.ClientResponse], Awaitable[T]]


@dataclass(frozen=True, slots=True)
class SyncCall:
    """A valid synchronous request. `item` is the caller's own body; the tokens are estimates, of the answer the most.

    `hurried`: it is to be refused at once rather than wait in line. `open_ended`: see `build`.
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


class _Unbegun(Exception):
    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class Gateway:
    """Relays calls. Use as an async context manager."""

    def __init__(self, settings: Settings, database: Database, secret: bytes) -> None:
        self._settings = settings
        self._secret = secret
        self._directory = EngineDirectory(database, settings.gateway_refresh_seconds)
        self._balance = Balance()
        self._line = WaitQueue()
        self._announcer = Announcer(bearer_token(secret, ANNOUNCING), rest_seconds=settings.announce_rest_seconds)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        await self._announcer.__aenter__()
        headers = {"content-type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=self._settings.request_timeout_seconds, sock_connect=CONNECT_SECONDS)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS)
        jar = aiohttp.DummyCookieJar()  # nothing that an engine says goes to another caller
        self._session = aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout, cookie_jar=jar)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._session is not None
        await self._session.close()
        await self._announcer.__aexit__()

    async def complete(self, call: SyncCall) -> bytes:
        """The engine's answer, verbatim. Raises SlackwaterError. Cancelling it makes the engine abort the request.

        It is asked of the engine in one piece, so its first token counts as come when all have.
        """
        watch = RequestTimer(call.model.served, streamed=False)
        async with self._begun(call, watch, _whole, stream=False) as (exchange, done):
            exchange.answered(None)
            watch.output_tokens = done.usage.completion_tokens
            watch.end()
            return done.body

    async def stream(self, call: SyncCall) -> AsyncGenerator[SseEvent, None]:
        """The engine's events up to its end, one of them an error if it breaks off. Closing it makes the engine abort.

        Raises SlackwaterError instead of the first event.
        """
        watch = RequestTimer(call.model.served, streamed=True)
        async with self._begun(call, watch, _first, stream=True) as (exchange, (first, rest)):
            try:
                event: SseEvent | None = first
                while event is not None:
                    if event.error:
                        raise exchange.failed(_outcome(event.error))
                    if event.usage:
                        said = event.usage.get("completion_tokens") or event.usage.get("output_tokens")
                        watch.output_tokens = int(said or watch.output_tokens)
                    elif event.carries_tokens and (ttft_ms := watch.token()) is not None:
                        exchange.answered(ttft_ms)
                    yield event
                    event = await anext(rest, None)
            except SlackwaterError as error:
                failure = error
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                failure = exchange.lost(error)
            else:
                watch.end()
                return
            yield sse_frames.failed(failure.code, failure.message)

    @asynccontextmanager
    async def _begun(
        self, call: SyncCall, watch: RequestTimer, begin: Begin[T], *, stream: bool
    ) -> AsyncIterator[tuple[EngineAttempt, T]]:
        """What `begin` makes of an engine's answer. Until it has made something, another engine may be asked, once.

        Raises SlackwaterError.
        """
        assert self._session is not None
        tokens = call.prompt_tokens, call.answer_tokens
        refusal: SlackwaterError | None = None
        tried: set[str] = set()
        reached, until = 0, clock.monotonic() + (0 if call.hurried else self._settings.line_seconds)
        while reached < _ENGINES_TRIED and (places := await self._places(call, tried, until)):
            engine = places[0]
            request = self._request(call, engine, stream=stream)
            tried.add(engine.name)
            async with entered(engine, self._balance, self._line, self._announcer, watch, *tokens) as exchange:
                begun = False
                try:
                    headers, url = self._headers(call, engine), engine.url + request.route
                    post = self._session.post(url, data=request.body, headers=headers, allow_redirects=False)
                    async with post as response:
                        found = await _good(response, begin)
                        begun = True
                        yield exchange, found
                        return
                except (_Unbegun, aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                    if begun:
                        raise
                    outcome = _meaning(error)
                refusal = exchange.failed(outcome)
            if _unreachable(outcome):
                self._balance.avoid(engine.name)
            else:
                reached += 1
            if not _next_may_take_it(outcome):
                raise refusal
        raise refusal or await self._full(call.model)

    async def _places(self, call: SyncCall, tried: Set[str], until: float) -> Sequence[Engine]:
        """Engines with room that were not tried, best first, once there are any; none if that is not before `until`."""
        served = call.model.served
        session = call.session and f"{call.tenant_id} {call.session}"

        async def find() -> Sequence[Engine]:
            ready = [engine for engine in await self._directory.ready(served) if engine.name not in tried]
            if not ready and await self._directory.hopeless(served, until - clock.monotonic()):
                raise await self._full(call.model)
            room = {engine.name: engine for engine in ready if self._balance.open[engine.name] < engine.slots}
            slots = {name: engine.slots for name, engine in room.items()}
            return [room[name] for name in self._balance.order(slots, session)]

        patience = until - clock.monotonic() if await self._directory.expects(served, tried) else 0
        return await self._line.wait(served, find, patience, again=bool(tried))

    async def _full(self, model: Model) -> SlackwaterError:
        """What to tell a caller for whom no engine had room."""
        if await self._directory.ready(model.served):
            ERRORS.labels(SYNC, model.served, "busy").inc()
            return NoCapacity("Capacity temporarily exceeded, please try again.")
        ERRORS.labels(SYNC, model.served, "no_engine").inc()
        expected = await self._directory.expected(model.served)
        when = f"; one is expected in about {reason_messages.duration(expected)}" if expected is not None else ""
        message = f"No engine is ready to serve {model.name} right now{when}, please try again."
        return NoCapacity(message, status=503, retry_after=RETRY_SECONDS if expected is None else math.ceil(expected))

    def _headers(self, call: SyncCall, engine: Engine) -> dict[str, str]:
        key = engine_key(self._settings, self._secret, engine.name, engine.mode)
        return trace_context.onward(call.traceparent) | ({"authorization": f"Bearer {key}"} if key else {})

    def _request(self, call: SyncCall, engine: Engine, *, stream: bool) -> EngineRequest:
        target = replace(Target.of(call.model), model=engine.asked_for)
        salt = tenant_salt(self._secret, call.tenant_id)
        return build(
            call.item,
            call.endpoint,
            target,
            salt,
            priority=SYNC_PRIORITY,
            stream=stream,
            open_ended=call.open_ended,
        )


async def _good(response: aiohttp.ClientResponse, begin: Begin[T]) -> T:
    if response.status != 200:
        raise _Unbegun(from_response(response.status, await response.read()))
    return await begin(response)


async def _whole(response: aiohttp.ClientResponse) -> Done:
    body = await response.read()
    if len(body) <= _SMALL_BYTES:
        outcome = from_response(200, body)
    else:
        outcome = await asyncio.to_thread(from_response, 200, body)
    if not isinstance(outcome, Done):
        raise _Unbegun(outcome)
    return outcome


async def _first(response: aiohttp.ClientResponse) -> tuple[SseEvent | None, AsyncIterator[SseEvent]]:
    events = _events(response)
    first = await anext(events, None)
    if first is not None and first.error:
        raise _Unbegun(_outcome(first.error))
    return first, events


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[SseEvent]:
    """The events up to the end of the stream. Raises ClientPayloadError if that never comes, ValueError for what is no JSON."""
    splitter = Splitter()
    async for block in response.content.iter_any():
        for data in splitter.feed(block):
            if data == b"[DONE]":
                await _ended(response)
                return
            body = orjson.loads(data)
            if not isinstance(body, dict):
                raise ValueError(f"not an object: {data[:80]!r}")  # noqa: TRY004
            event = SseEvent(data, body)
            yield event
            if event.ends:
                return
    raise aiohttp.ClientPayloadError("the stream ended early")


async def _ended(response: aiohttp.ClientResponse) -> None:
    """Read the body's end, which follows the last event at once: only then can the connection be used again."""
    with suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(_END_SECONDS):
            await response.content.readany()


def _outcome(error: Mapping[str, Any]) -> Outcome:
    """The meaning of an error in a stream, as if the engine had answered with its status."""
    code = error.get("code")
    return from_response(code if isinstance(code, int) else 500, orjson.dumps({"error": error}))


def _meaning(error: Exception) -> Outcome:
    """What an answer that has not begun means for the request."""
    match error:
        case _Unbegun():
            return error.outcome
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return EngineDown(f"cannot connect: {error}", suspect=False)
        case TimeoutError():
            return Retry("the engine gave no answer in time", TIMED_OUT)
        case ValueError():
            return Retry(f"the engine sent what is no JSON: {error}")
        case _:
            return EngineDown("the engine was lost before its answer was complete", suspect=True)


def _unreachable(outcome: Outcome) -> bool:
    return isinstance(outcome, EngineDown) and not outcome.suspect


def _next_may_take_it(outcome: Outcome) -> bool:
    """Whether another engine may do better. One that died may have died of the request, which is why only one more is asked."""
    return isinstance(outcome, EngineDown) or (isinstance(outcome, Retry) and outcome.busy)
