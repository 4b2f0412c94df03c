"""The guarded HTTP client. Every request to a URL that a customer names goes through it.

`EgressClient` is the whole interface. ssrfguard checks URLs and addresses. The client connects to the address that was checked,
so the name is not resolved a second time. Public addresses are reached by HTTPS on port 443 only, and others if
SLACKWATER_WEBHOOK_ALLOW_PRIVATE allows them. It follows no redirects and uses no proxies, no cookies and no credentials in URLs.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, Self

import aiohttp
from ssrfguard import Address as Checked
from ssrfguard import Resolver, Target, resolve
from ssrfguard.errors import BlockedAddressError, SSRFGuardError
from yarl import URL

from app import clock, host_lists
from app.settings import PrivateTargets, Settings
from app.webhooks.egress_rules import SECURE, broken, policies, reason, request_target, unkept
from app.webhooks.name_resolution import NameResolver
from app.webhooks.response_policy import CONTROL, Answer, Refusal, status_error
from app.webhooks.retry_policy import parse_retry_after

_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)  # `asyncio.timeout` limits the attempt instead
_PROTOCOL = (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, aiohttp.ClientResponseError)

# The error classes of an attempt without a response, each with its description.
FAULTS = {
    "ssrf_blocked": "webhooks may not go to its address (ssrf_blocked)",
    "policy_denied": "a rule of the policy does not allow its host (policy_denied)",
    "timeout": "it did not answer in time (timeout)",
    "unended": "the body of its answer did not end in time (unended)",
    "dns": "its name does not resolve (dns)",
    "tls": "no TLS connection to it could be made (tls)",
    "protocol": "its response is not HTTP (protocol)",
    "connect": "no connection to it could be made (connect)",
}


def failure(status: int | None, error: str, duration_ms: int) -> str:
    """Why an attempt failed, in words. `error`: its class."""
    if error == "unended":
        return (
            f"it was sent, and the receiver answered {status}, but the body of the answer did not end within "
            f"{duration_ms / 1000:.0f} s ({error})"
        )
    fault = FAULTS.get(error)
    return f"the receiver could not be reached: {fault}" if fault else f"{status} {error}"


class TargetRefused(Exception):
    """Webhooks may not go to this URL or its address. The message is safe to show to its owner."""


class HostNotListed(TargetRefused):
    """A list of hosts does not have the host. `refusal`: the list, and why in a sentence."""

    def __init__(self, whose: str, by: str, host: str) -> None:
        super().__init__(f"must go to one of the hosts that {whose} allows; {host} is not one of them")
        self.refusal = Refusal(by, f"the webhook {self}")


class EgressClient(Protocol):
    """What registration and delivery need of the network."""

    async def check(self, url: str, hosts: Sequence[str] | None = None, *, owner: int | None = None) -> bool:
        """Raise `TargetRefused` unless `url` may be called and its host is one of `hosts`, if any are given.

        False: its name does not resolve yet, which is allowed. `.example.com` allows every host below it. `owner`: the tenant;
        lookups of one tenant may wait for each other.
        """

    async def post(
        self,
        url: str,
        headers: dict[str, str],
        body: bytes,
        hosts: Sequence[str] | None = None,
        *,
        owner: int | None = None,
    ) -> Answer:
        """Make one attempt with a total deadline. Never raises for an error of the network or the receiver."""


class Egress:
    """The guarded client. Every attempt resolves, checks and connects again. Close it, or use it as a context manager."""

    def __init__(
        self,
        *,
        allow_private: PrivateTargets,
        timeout_seconds: float,
        response_bytes: int,
        hosts: Sequence[str] = (),
        resolver: Resolver | None = None,
    ) -> None:
        self._allows: PrivateTargets = allow_private
        self._policy, self._plain = policies(allow_private)
        self._hosts = tuple(hosts)
        self._timeout = timeout_seconds
        self._response_bytes = response_bytes
        self._resolver = resolver
        self._lookups: NameResolver[tuple[Checked, ...]] = NameResolver()
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The client that the settings describe."""
        return cls(
            allow_private=settings.webhook_allow_private,
            timeout_seconds=settings.webhook_timeout_seconds,
            response_bytes=settings.webhook_response_kb * 1024,
            hosts=host_lists.parse(settings.webhook_allowed_hosts),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close open connections."""
        if self._session is not None:
            await self._session.close()
        self._lookups.close()

    async def check(self, url: str, hosts: Sequence[str] | None = None, *, owner: int | None = None) -> bool:
        """See `EgressClient.check`."""
        if (wrong := unkept(url)) is not None:
            raise TargetRefused(wrong)
        secure = True
        try:
            target = self._target(url, hosts)
            secure = _is_secure(target)
            await self._resolve(target, owner)
        except SSRFGuardError as error:
            by_address = isinstance(error, BlockedAddressError) or isinstance(error.__cause__, BlockedAddressError)
            raise TargetRefused(reason(self._allows, broken(self._allows, url, by_address=by_address))) from error
        except (OSError, UnicodeError) as error:
            if self._allows == "loopback" and not secure:  # a loopback name would resolve
                raise TargetRefused(reason(self._allows, broken(self._allows, url, by_address=True))) from error
            return False  # every attempt checks again
        return True

    def _target(self, url: str, hosts: Sequence[str] | None) -> Target:
        """The target of the URL. Raises HostNotListed for a host that the installation or `hosts` does not allow."""
        target = self._policy.check_url(url)
        host = target.host.lower().rstrip(".")
        for whose, by, allowed in (
            ("this installation", "SLACKWATER_WEBHOOK_ALLOWED_HOSTS", self._hosts or None),
            ("your account", "account webhook-hosts", hosts),
        ):
            if allowed is not None and not host_lists.lists(allowed, host):
                raise HostNotListed(whose, by, host)
        return target

    async def _resolve(self, target: Target, owner: int | None) -> tuple[Checked, ...]:
        """The addresses of the target. Raises SSRFGuardError if one of them is not allowed."""
        secure = _is_secure(target)
        look = partial(resolve, target, policy=self._policy if secure else self._plain, resolver=self._resolver)
        return look() if target.is_literal_address else await self._lookups.get((target.host, secure), look, owner)

    async def post(
        self,
        url: str,
        headers: dict[str, str],
        body: bytes,
        hosts: Sequence[str] | None = None,
        *,
        owner: int | None = None,
    ) -> Answer:
        """See `EgressClient.post`."""
        start, heard = clock.monotonic(), dict[str, Any]()
        try:
            async with asyncio.timeout(self._timeout):  # of the whole attempt, so a slow receiver cannot extend it
                await self._exchange(url, headers, body, hosts, owner, heard)
        except Exception as error:
            heard["error"] = heard.get("error") or _error_class(error, answered=bool(heard))
            heard["refusal"] = error.refusal if isinstance(error, HostNotListed) else None
        return Answer(round((clock.monotonic() - start) * 1000), **heard)

    async def _exchange(
        self,
        url: str,
        headers: dict[str, str],
        body: bytes,
        hosts: Sequence[str] | None,
        owner: int | None,
        heard: dict[str, Any],
    ) -> None:
        """Post to the first address that can be reached. `heard`: gets the fields of the answer."""
        target = self._target(url, hosts)
        addresses = (await self._resolve(target, owner))[: self._policy.max_connection_attempts]
        for address in addresses[:-1]:
            try:
                await self._post(target, address, url, headers, body, heard)
            except aiohttp.ClientConnectorSSLError:
                raise
            except aiohttp.ClientConnectorError:
                continue
            return
        await self._post(target, addresses[-1], url, headers, body, heard)

    async def _post(
        self,
        target: Target,
        address: Checked,
        url: str,
        headers: dict[str, str],
        body: bytes,
        heard: dict[str, Any],
    ) -> None:
        path = request_target(url)  # with the query: yarl leaves out an empty one
        dialled = URL.build(scheme=target.scheme, host=str(address.ip), port=target.port, path=path, encoded=True)
        name = f"[{target.host}]" if ":" in target.host else target.host
        host = name if target.port == (443 if target.scheme == "https" else 80) else f"{name}:{target.port}"
        async with self._open_session().post(
            dialled,
            data=body,
            headers={"accept-encoding": "identity", **headers, "host": host},
            server_hostname=target.host if target.scheme == "https" else None,
            allow_redirects=False,
        ) as response:
            heard |= _head(response) | {"address": str(address.ip)}
            await self._read(response, heard)

    async def _read(self, response: aiohttp.ClientResponse, heard: dict[str, Any]) -> None:
        """Keep the first bytes of the body. The rest of the body is not read."""
        heard["body"] = b""
        async for part in response.content.iter_any():
            heard["body"] += part[: self._response_bytes - len(heard["body"])]
            if len(heard["body"]) >= self._response_bytes:
                response.close()
                break

    def _open_session(self) -> aiohttp.ClientSession:
        """Created at first use, because it belongs to the running loop. No connection is used twice."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, force_close=True, socket_factory=self._socket, happy_eyeballs_delay=None
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                timeout=_NO_TIMEOUT,
                skip_auto_headers=("accept", "user-agent"),
            )
        return self._session

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        """Create a socket after a last check of the address. Every socket of this client is created here."""
        family, kind, protocol, _, (ip, port, *_) = address
        (self._policy if port == SECURE[1] else self._plain).check_address(ip)
        return socket.socket(family, kind, protocol)


def _is_secure(target: Target) -> bool:
    return (target.scheme, target.port) == SECURE


def _head(response: aiohttp.ClientResponse) -> dict[str, Any]:
    """What the head of an answer says. An error in it counts, whatever becomes of the body."""
    return {
        "status": response.status,
        "error": status_error(response.status),
        "retry_after": parse_retry_after(response.headers.get("retry-after"), clock.now()),
        "control": response.headers.get(CONTROL, "").strip().lower() or None,
    }


def _error_class(error: Exception, *, answered: bool) -> str:
    """The class in FAULTS of an attempt's failure. `answered`: its head came. `connect` covers everything else."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    if any(isinstance(link, SSRFGuardError | TargetRefused) for link in chain):
        return "ssrf_blocked"
    if any(isinstance(link, TimeoutError) for link in chain):
        return "unended" if answered else "timeout"
    if any(isinstance(link, socket.gaierror) for link in chain):
        return "dns"
    if any(isinstance(link, ssl.SSLError | aiohttp.ClientSSLError) for link in chain):
        return "tls"
    if any(isinstance(link, _PROTOCOL) for link in chain):
        return "protocol"
    return "connect"
