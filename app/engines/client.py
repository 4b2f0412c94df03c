"""The HTTP client of an OpenAI-compatible engine. What can go wrong is an Outcome, never an exception."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Self, TypeVar

import aiohttp
import orjson

from app import trace
from app.engines.outcome import TIMED_OUT, EngineDown, Outcome, Retry, from_response
from app.engines.requests import EngineRequest
from app.engines.transcript import Transcript

CONNECT_SECONDS = 5.0
HEALTH_SECONDS = 2.0
PATIENCE = 6  # so many times longer has a request that the engine's own scheduler may freeze

T = TypeVar("T")


class EngineClient:
    """Calls one engine. Use as an async context manager."""

    def __init__(self, url: str, api_key: str = "", *, timeout_seconds: float) -> None:
        self.url = url.rstrip("/")
        self._headers = {"content-type": "application/json"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=CONNECT_SECONDS)
        self._patience = aiohttp.ClientTimeout(total=PATIENCE * timeout_seconds, sock_connect=CONNECT_SECONDS)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # One connection per request: a server may close an idle one just as we reuse it, and a lost connection has to
        # mean that the engine died. Beside an inference the handshake is nothing.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self._session = aiohttp.ClientSession(connector=connector, headers=self._headers, timeout=self._timeout)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def complete(self, request: EngineRequest, *, patient: bool = False) -> Outcome:
        """Run one request. Cancelling the call closes its connection, which makes the engine abort it.

        `patient`: the engine may freeze it at will, so it has longer, and if that does not do it was no fault of its own.
        """
        assert self._session is not None
        limit = self._patience if patient else self._timeout
        url = self.url + request.route
        try:
            headers = trace.onward(request.traceparent)
            async with self._session.post(
                url, data=request.body, headers=headers, allow_redirects=False, timeout=limit
            ) as response:
                return from_response(response.status, await response.read())
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return EngineDown(f"cannot connect: {error}", suspect=False)
        except TimeoutError:
            return Retry("the engine gave no answer in time", TIMED_OUT, busy=patient)
        except (aiohttp.ClientError, OSError) as error:
            return EngineDown(f"connection lost: {error!r}", suspect=True)

    async def stream(self, transcript: Transcript, on_first_token: Callable[[], None]) -> Outcome | None:
        """Run a request, or what is left of it, into its transcript. None: the transcript is complete.

        Cancelling the call makes the engine abort it; the transcript keeps what was heard.
        """
        return await self._streamed(transcript.call(), lambda content: _heard(content, transcript, on_first_token))

    async def events(self, request: EngineRequest, hear: Callable[[bytes], None]) -> Outcome:
        """Run one request of the Responses API as a stream, telling every event; its last one holds the answer.

        Cancelling the call makes the engine abort it.
        """
        return await self._streamed(request, lambda content: _answered(content, hear))

    async def _streamed(
        self, request: EngineRequest, read: Callable[[aiohttp.StreamReader], Awaitable[T]]
    ) -> T | Outcome:
        """What `read` makes of the stream that answers a request, or what became of the request instead."""
        assert self._session is not None
        url, headers = self.url + request.route, trace.onward(request.traceparent)
        try:
            async with self._session.post(url, data=request.body, headers=headers, allow_redirects=False) as response:
                if response.status != 200:
                    return from_response(response.status, await response.read())
                return await read(response.content)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return EngineDown(f"cannot connect: {error}", suspect=False)
        except TimeoutError:
            return Retry("the engine gave no answer in time", TIMED_OUT)
        except (aiohttp.ClientError, OSError) as error:
            return EngineDown(f"connection lost: {error!r}", suspect=True)
        except ValueError as error:
            return Retry(f"the engine streamed what is no JSON: {error}")

    async def detokenize(self, model: str, tokens: Sequence[int]) -> str | None:
        """The text of these tokens, special ones included; None if the engine does not say."""
        assert self._session is not None
        body = orjson.dumps({"model": model, "tokens": list(tokens)})
        try:
            async with self._session.post(f"{self.url}/detokenize", data=body) as response:
                return str((await response.json())["prompt"]) if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError):
            return None

    async def healthy(self) -> bool:
        """Whether the engine answers /health with 200 within two seconds."""
        assert self._session is not None
        timeout = aiohttp.ClientTimeout(total=HEALTH_SECONDS)
        try:
            async with self._session.get(f"{self.url}/health", timeout=timeout) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def served_models(self) -> list[str]:
        """The names at /v1/models; empty if the engine does not say."""
        assert self._session is not None
        timeout = aiohttp.ClientTimeout(total=HEALTH_SECONDS)
        try:
            async with self._session.get(f"{self.url}/v1/models", timeout=timeout) as response:
                return [str(model["id"]) for model in (await response.json())["data"]]
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError):
            return []


async def _heard(
    content: aiohttp.StreamReader, transcript: Transcript, on_first_token: Callable[[], None]
) -> Outcome | None:
    before, told = len(transcript.output_ids), False
    async for line in _lines(content):
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            break
        if line.startswith(b"data:"):
            transcript.hear(data)
        if not told and len(transcript.output_ids) > before:
            told = True
            on_first_token()
        if transcript.error is not None:
            error, transcript.error = transcript.error, None
            code = error.get("code")
            return from_response(code if isinstance(code, int) else 500, orjson.dumps({"error": error}))
    if transcript.finish_reason is None:
        return EngineDown("the stream ended early", suspect=True)
    return None


async def _answered(content: aiohttp.StreamReader, hear: Callable[[bytes], None]) -> Outcome:
    """The outcome of a response's events. That it was begun and queued, our own log has said already."""
    async for line in _lines(content):
        data = line.removeprefix(b"data:").strip()
        if not line.startswith(b"data:") or data == b"[DONE]":
            continue
        event = orjson.loads(data)
        kind = event.get("type")
        if kind in ("error", "response.failed") or "error" in event:
            failed = event.get("error") or (event.get("response") or {}).get("error") or event
            return from_response(500, orjson.dumps({"error": failed}))
        if kind not in ("response.created", "response.queued"):
            hear(data)
        if kind in ("response.completed", "response.incomplete"):
            return from_response(200, orjson.dumps(event["response"]))
    return EngineDown("the stream ended early", suspect=True)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length: the first event of a stream holds the token ids of a whole prompt."""
    pieces: list[bytes] = []
    async for block in content.iter_any():
        *ended, rest = block.split(b"\n")
        for line in ended:
            yield b"".join([*pieces, line])
            pieces.clear()
        pieces.append(rest)
