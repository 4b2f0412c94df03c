"""The HTTP client of an OpenAI-compatible engine. What can go wrong is an Outcome, never an exception."""

from typing import Self

import aiohttp

from app.engines.outcome import TIMED_OUT, EngineDown, Outcome, Retry, from_response
from app.engines.requests import EngineRequest

CONNECT_SECONDS = 5.0
HEALTH_SECONDS = 2.0


class EngineClient:
    """Calls one engine. Use as an async context manager."""

    def __init__(self, url: str, api_key: str = "", *, timeout_seconds: float) -> None:
        self.url = url.rstrip("/")
        self._headers = {"content-type": "application/json"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=CONNECT_SECONDS)
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

    async def complete(self, request: EngineRequest) -> Outcome:
        """Run one request. Cancelling the call closes its connection, which makes the engine abort it."""
        assert self._session is not None
        url = self.url + request.route
        try:
            async with self._session.post(url, data=request.body, allow_redirects=False) as response:
                return from_response(response.status, await response.read())
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return EngineDown(f"cannot connect: {error}", suspect=False)
        except TimeoutError:
            return Retry("the engine gave no answer in time", TIMED_OUT)
        except (aiohttp.ClientError, OSError) as error:
            return EngineDown(f"connection lost: {error!r}", suspect=True)

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
