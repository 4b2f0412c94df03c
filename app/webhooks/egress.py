"""The only way out to addresses that customers name.

`EgressClient` is the whole interface; ssrfguard stands behind it: it resolves once, checks every answer and connects to
the address it checked. HTTPS on port 443 to public addresses; no redirects, no proxies, no credentials in the URL.
"""

import asyncio
import socket
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Protocol, Self

import httpx
from ssrfguard import DEFAULT_DENIED, AddressTable, Block, Policy, Reach, Resolver, resolve
from ssrfguard.errors import SSRFGuardError
from ssrfguard.httpx import AsyncSafeTransport

from app import clock
from app.settings import Settings
from app.webhooks.schedule import Answer, parse_retry_after, status_error

_LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
_EXTRA_DENIED: tuple[tuple[IPv4Network | IPv6Network, str], ...] = (
    (ip_network("168.63.129.16/32"), "Azure WireServer"),
    (ip_network("::ffff:0:0:0/96"), "IPv4-translated (SIIT)"),
)
_LOOKUP_SECONDS = 5.0


class Refused(Exception):
    """The URL or its address is not one we connect to. The message is safe to show to its owner."""


class EgressClient(Protocol):
    """What registration and delivery need of the outside world."""

    async def check(self, url: str) -> None:
        """Raise `Refused` unless `url` may be called. A name that does not resolve yet is allowed."""

    async def post(self, url: str, headers: dict[str, str], body: bytes) -> Answer:
        """One attempt, ended by a total deadline. Never raises for what the network or the receiver does."""


class Egress:
    """The guarded client. Every attempt resolves, checks and connects anew. Close it, or use it as a context."""

    def __init__(
        self, *, allow_private: bool, timeout_seconds: float, response_bytes: int, resolver: Resolver | None = None
    ) -> None:
        self._policy = _policy(allow_private)
        self._timeout = timeout_seconds
        self._response_bytes = response_bytes
        self._resolver = resolver
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._transport = AsyncSafeTransport(
            policy=self._policy, resolver=resolver, limits=limits, trust_env=False, resolver_slots=64
        )

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The client that the settings describe."""
        return cls(
            allow_private=settings.webhook_allow_private,
            timeout_seconds=settings.webhook_timeout_seconds,
            response_bytes=settings.webhook_response_kb * 1024,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close open connections."""
        await self._transport.aclose()

    async def check(self, url: str) -> None:
        """See `EgressClient.check`."""
        try:
            target = self._policy.check_url(url)
            httpx.URL(url)
            lookup = asyncio.to_thread(resolve, target, policy=self._policy, resolver=self._resolver)
            await asyncio.wait_for(lookup, _LOOKUP_SECONDS)
        except (SSRFGuardError, httpx.InvalidURL) as error:
            raise Refused(_reason(self._policy)) from error
        except (OSError, TimeoutError, UnicodeError):
            return  # no such name today; every attempt checks again

    async def post(self, url: str, headers: dict[str, str], body: bytes) -> Answer:
        """See `EgressClient.post`."""
        started_at, start = clock.now(), clock.monotonic()

        def ended(**outcome: object) -> Answer:
            return Answer(started_at, round((clock.monotonic() - start) * 1000), **outcome)  # type: ignore[arg-type]

        try:
            async with asyncio.timeout(self._timeout):  # httpx counts per read, which a dripping receiver stretches
                response, answered = await self._exchange(url, headers, body)
        except Exception as error:
            return ended(error=_error_class(error))
        retry_after = parse_retry_after(response.headers.get("retry-after"), clock.now())
        status = response.status_code
        return ended(status=status, error=status_error(status), body=answered, retry_after=retry_after)

    async def _exchange(self, url: str, headers: dict[str, str], body: bytes) -> tuple[httpx.Response, bytes]:
        """Send straight through the transport: no cookies, redirects, decompression or environment on the way."""
        self._policy.check_url(url)
        request = httpx.Request("POST", url, headers={"accept-encoding": "identity", **headers}, content=body)
        response = await self._transport.handle_async_request(request)
        kept = bytearray()
        try:
            async for part in response.aiter_raw():
                kept += part[: self._response_bytes - len(kept)]
                if len(kept) >= self._response_bytes:
                    break
        finally:
            await response.aclose()
        return response, bytes(kept)


def _policy(allow_private: bool) -> Policy:
    extra = tuple(Block(network, name, "operator", Reach.DENIED) for network, name in _EXTRA_DENIED)
    denied = AddressTable((*DEFAULT_DENIED.blocks, *extra))
    if allow_private:
        ports = frozenset(range(1, 65536))
        return Policy(frozenset({"http", "https"}), denied, _LOOPBACK, ports, max_redirects=0)
    return Policy(frozenset({"https"}), denied, (), frozenset({443}), max_redirects=0)


def _reason(policy: Policy) -> str:
    if "http" in policy.allowed_schemes:
        return "must be http or https on a public or loopback address, without credentials"
    return "must be https on port 443 of a public address, without credentials"


def _error_class(error: Exception) -> str:
    """The class under which an attempt's failure is kept; `connect` covers what has no better name."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    if any(isinstance(link, SSRFGuardError) for link in chain):
        return "ssrf_blocked"
    if any(isinstance(link, TimeoutError | httpx.TimeoutException) for link in chain):
        return "timeout"
    if any(isinstance(link, socket.gaierror) for link in chain):
        return "dns"
    if any(type(link).__module__ == "ssl" or "SSL" in type(link).__name__ for link in chain):
        return "tls"
    if any(isinstance(link, httpx.RemoteProtocolError) for link in chain):
        return "protocol"
    return "connect"
