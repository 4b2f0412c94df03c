"""The HTTP client of an OpenAI-compatible engine. A failed request is returned as an Outcome, not raised."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Self, TypeVar
from urllib.parse import urlencode

import aiohttp
import orjson

from app import off_loop, trace_context
from app.engines import adoption, dialects, embeddings
from app.engines.adoption import Contradiction, Sighting
from app.engines.answer_streams import is_stream, read_events, read_transcript
from app.engines.catalogue import Task
from app.engines.context_window import Count, counted, question
from app.engines.continuation import Continuation
from app.engines.dialects import DIALECTS, OPENAI, TRTLLM, VLLM, Dialect
from app.engines.mending import prompt_estimate
from app.engines.outcome import (
    TIMED_OUT,
    UNREADABLE,
    Done,
    Doubt,
    EngineDown,
    Outcome,
    Retry,
    from_response,
    unreadable,
)
from app.engines.requests import EngineRequest

CONNECT_SECONDS = 5.0
HEALTH_SECONDS = 2.0
PROBE_SECONDS = 10.0  # for one token; an engine that is merely full may need longer, and then nothing is known
FREEZE_TIMEOUT_FACTOR = 6  # longest timeout of a request that the engine's scheduler may freeze
_CONNECT_ONLY = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)  # the rest is up to _Limit

T = TypeVar("T")
Patient = Callable[[], bool]


def _impatient() -> bool:
    return False


class EngineAway(Exception):
    """The engine does not answer, or not as an engine does. The message says why, without its address. `status` is the
    HTTP status, if there was a response.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class EngineClient:
    """Calls one engine, with these headers in each request. Use as an async context manager.

    `dialect`: its name, or `auto`: `look` finds it out, and until then the engine is taken for vLLM.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str] | None = None, *, timeout_seconds: float, dialect: str = "auto"
    ) -> None:
        self.url = url.rstrip("/")
        self._named = DIALECTS.get(dialect)
        self._dialect: Dialect = self._named or VLLM
        self._headers = {"content-type": "application/json", **(headers or {})}
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=CONNECT_SECONDS)
        self._seconds = timeout_seconds
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # One connection per request, because a server may close an idle connection just when it is reused, and a lost
        # connection must mean that the engine died. The handshake costs little compared with an inference.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self._session = aiohttp.ClientSession(connector=connector, headers=self._headers, timeout=self._timeout)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def probe(self, request: EngineRequest) -> Outcome:
        """Run a one-token request, which may tell whether the engine can be used at all."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                return await self.complete(request)
        except TimeoutError:
            return Retry("the engine gave no token in time", TIMED_OUT)

    async def complete(self, request: EngineRequest, *, patient: Patient = _impatient) -> Outcome:
        """Run one request. Cancelling the call closes its connection, which makes the engine abort it.

        `patient`: whether the engine may freeze the request now, which is asked whenever its timeout comes: then it gets
        another one, up to FREEZE_TIMEOUT_FACTOR of them, and in the end the engine counts as busy.
        """
        assert self._session is not None
        url = self.url + request.route
        limit = _Limit(self._seconds, patient)
        try:
            headers = trace_context.sent(request.traceparent)
            async with (
                limit.kept(),
                self._session.post(
                    url, data=request.body, headers=headers, allow_redirects=False, timeout=_CONNECT_ONLY
                ) as response,
            ):
                outcome = from_response(response.status, await response.read(), prompt_estimate(request.body))
                if isinstance(outcome, Done) and request.base64:
                    return replace(outcome, body=await off_loop.done(outcome.body, embeddings.in_base64, outcome.body))
                return outcome
        except TimeoutError as error:
            return _broken(error, patient=limit.frozen)
        except (aiohttp.ClientError, OSError) as error:
            return _broken(error)

    async def stream(
        self, transcript: Continuation, on_first_token: Callable[[], None], *, patient: Patient = _impatient
    ) -> Outcome | None:
        """Run a request, or the rest of it, into its transcript. Returns None when the transcript is complete.

        `patient`: see `complete`. Cancelling the call makes the engine abort it. The transcript keeps what was received.
        """
        return await self._streamed(
            transcript.call(),
            lambda content: read_transcript(content, transcript, on_first_token),
            patient=patient,
        )

    async def events(
        self,
        request: EngineRequest,
        on_event: Callable[[bytes], None],
        *,
        begun: bool,
        prompt_tokens: int | None = None,
        patient: Patient = _impatient,
    ) -> Outcome:
        """Run one response or chat completion as a stream, and pass each event to `on_event`. The outcome has the whole answer.

        `begun`: skip the events `created` and `queued`, which were sent before. `prompt_tokens`: an estimate, for a stream
        without usage that must not be repeated. `patient`: see `complete`. Cancelling makes the engine abort.
        """
        return await self._streamed(
            request,
            lambda content: read_events(content, on_event, begun=begun, prompt_tokens=prompt_tokens),
            patient=patient,
        )

    async def _streamed(
        self, request: EngineRequest, read: Callable[[aiohttp.StreamReader], Awaitable[T]], *, patient: Patient
    ) -> T | Outcome:
        """The result of `read` on the stream that answers a request, or the outcome if the request failed."""
        assert self._session is not None
        url, headers = self.url + request.route, trace_context.sent(request.traceparent)
        limit = _Limit(self._seconds, patient)
        try:
            async with (
                limit.kept(),
                self._session.post(
                    url, data=request.body, headers=headers, allow_redirects=False, timeout=_CONNECT_ONLY
                ) as response,
            ):
                if response.status != 200 or not is_stream(response.content_type):
                    return from_response(response.status, await response.read(), prompt_estimate(request.body))
                return await read(response.content)
        except TimeoutError as error:
            return _broken(error, patient=limit.frozen)
        except (aiohttp.ClientError, OSError) as error:
            return _broken(error)
        except UNREADABLE as error:
            return unreadable(error)

    async def detokenize(self, model: str, tokens: Sequence[int]) -> str | None:
        """The text of these tokens, including special ones; None if the engine does not answer."""
        assert self._session is not None
        given = {"model": model, "tokens": list(tokens)}
        body = orjson.dumps(given if self._dialect is VLLM else given | {"skip_special_tokens": False})
        try:
            async with self._session.post(f"{self.url}/detokenize", data=body) as response:
                return str((await response.json())[self._dialect.text_field]) if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError):
            return None

    async def count(self, request: EngineRequest) -> Count | None:
        """The tokens of a request's prompt, as the engine counts them; None if it does not answer."""
        return counted(await self._tokenized(request))

    async def _tokenized(self, request: EngineRequest) -> object:
        assert self._session is not None
        body = await off_loop.done(request.body, _asked, request)
        if body is None:
            return None
        try:
            async with self._session.post(f"{self.url}/tokenize", data=body) as response:
                return await response.json() if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None

    async def tokens_of(self, request: EngineRequest) -> list[int] | None:
        """The token ids of a request's prompt; None if the engine does not answer."""
        answer = await self._tokenized(request)
        ids = answer.get("tokens") if isinstance(answer, dict) else None
        return ids if isinstance(ids, list) and ids and all(isinstance(token, int) for token in ids) else None

    async def healthy(self) -> bool:
        """Whether the engine answers its health check with 200 within two seconds. A server without one must list its models."""
        status = await self._status(self._dialect.health)
        if status in (404, 405) and self._named is None:
            status = await self._status(OPENAI.health)
        return status == 200

    async def look(self) -> Sighting:
        """The engine's description of itself: its dialect, names and windows, version, scheduling policy.

        It is empty if the engine has no list of models. Raises EngineAway with the reason, Contradiction if the engine
        refuses the API key or is not an engine.
        """
        try:
            documents = await asyncio.gather(
                self._json("/v1/models"),
                _or_none(self._json, "/version"),
                _or_none(self._json, "/server_info", config_format="json"),
            )
            if adoption.lists_as_slackwater(documents[0]) and await self._is_slackwater():
                raise Contradiction(adoption.slackwater())
            dialect = self._named or dialects.by_owner(documents[0]) or await self._by_page()
            page = await _or_none(self.page, TRTLLM.metrics.path) if dialect is TRTLLM and TRTLLM.metrics else None
            seen, self._dialect = adoption.read(*documents, page, dialect), dialect
        except ValueError as error:
            raise EngineAway(str(error)) from error
        except EngineAway as error:
            if error.status in (401, 403):
                own = await self._is_slackwater()
                raise Contradiction(adoption.slackwater() if own else adoption.key_refused(error.status)) from error
            if error.status in (404, 405):
                if await self._status("/health") == 404:
                    raise Contradiction(adoption.foreign()) from error
                named = self._named
                return replace(adoption.UNSEEN, terms=dialects.terms_of(named, None)) if named else adoption.UNSEEN
            raise
        return seen

    async def _is_slackwater(self) -> bool:
        return adoption.is_slackwater(await _or_none(self._json, "/status"))

    async def _by_page(self) -> Dialect:
        """The dialect by the metrics page; the one that was known before, if the page cannot be read now."""
        try:
            return dialects.by_page(await self.page("/metrics"))
        except EngineAway as error:
            return self._dialect if error.status is None or error.status >= 500 else dialects.by_page(None)

    async def task(self) -> Task:
        """The engine's task; text generation if it does not report one."""
        return adoption.task_of(await _or_none(self._json, "/openapi.json"))

    async def page(self, path: str) -> str:
        """The text of the page at this path. Raises EngineAway."""
        assert self._session is not None
        timeout = aiohttp.ClientTimeout(total=HEALTH_SECONDS)
        try:
            async with self._session.get(f"{self.url}{path}", timeout=timeout) as response:
                if response.status != 200:
                    raise EngineAway(f"{path}: HTTP {response.status}", response.status)
                return await response.text()
        except TimeoutError:
            raise EngineAway(f"{path}: no answer within {HEALTH_SECONDS:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise EngineAway(f"{path}: {without_address(error)}") from error

    async def _status(self, path: str) -> int | None:
        """The HTTP status at this path; None for no answer."""
        try:
            await self.page(path)
        except EngineAway as error:
            return error.status
        return 200

    async def _json(self, path: str, **query: str) -> object:
        text = await self.page(f"{path}?{urlencode(query)}" if query else path)
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            raise EngineAway(f"{path}: the answer is not JSON") from None


class _Limit:
    """The time limit of one request, in periods. One that began or ended while the request might be frozen does not count.

    `frozen`: whether the last period did not, so that a timeout is not the request's fault.
    """

    def __init__(self, seconds: float, patient: Patient) -> None:
        self._seconds = seconds
        self._patient = patient
        self._left = FREEZE_TIMEOUT_FACTOR
        self._at_its_begin = patient()
        self.frozen = False

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Raises TimeoutError at the end of the first period that counts, or of the last one."""
        async with asyncio.timeout(None) as timeout:
            self._begin(timeout)
            try:
                yield
            finally:
                self._timer.cancel()

    def _begin(self, timeout: asyncio.Timeout) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._ended, timeout)

    def _ended(self, timeout: asyncio.Timeout) -> None:
        now = self._patient()
        self.frozen, self._at_its_begin = self._at_its_begin or now, now
        self._left -= 1
        if self.frozen and self._left > 0:
            self._begin(timeout)
        else:
            timeout.reschedule(asyncio.get_running_loop().time())


def _broken(error: Exception, *, patient: bool = False) -> Outcome:
    """The outcome of a request whose connection was not made, or not kept."""
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)):
        return EngineDown(f"cannot connect: {error}", suspect=False, words=without_address(error))
    if isinstance(error, TimeoutError):
        return Retry("the engine gave no answer in time", TIMED_OUT, busy=patient)
    if isinstance(error, aiohttp.ClientPayloadError) and "content-encoding" in str(error):
        return Doubt(200, "its compressed body cannot be read")
    # what aiohttp says of a body that ends early is Python
    said = "the answer was not complete" if isinstance(error, aiohttp.ClientPayloadError) else str(error)
    return EngineDown(f"connection lost: {said}" if said else "connection lost", suspect=True)


def _asked(request: EngineRequest) -> bytes | None:
    """What `/tokenize` is asked about a request. None: nothing."""
    body = question(request)
    return None if body is None else orjson.dumps(body)


async def _or_none(ask: Callable[..., Awaitable[object]], path: str, **query: str) -> object:
    try:
        return await ask(path, **query)
    except EngineAway:
        return None


def without_address(error: Exception) -> str:
    """Why a connection failed, without the address."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = getattr(error.os_error, "verify_message", "") or error.os_error
        return f"its TLS certificate is not trusted: {reason} (of a CA of your own? name its file in SSL_CERT_FILE)"
    if isinstance(error, aiohttp.ClientSSLError):
        return "no TLS connection can be made (http:// instead of https://?)"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the connection was closed without an answer (https:// instead of http://?)"
    if not isinstance(error, aiohttp.ClientConnectorError):
        return str(error) or type(error).__name__
    number = error.os_error.errno or 0  # name resolution errors have negative numbers
    return (os.strerror(number) if number > 0 else error.os_error.strerror) or "cannot connect"
