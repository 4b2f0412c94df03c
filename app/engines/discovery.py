"""Finds the engines that `SLACKWATER_ENGINES` names: reads the file, or asks the DNS."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from app import processes
from app.causes import cause
from app.engines import engine_list
from app.engines.engine_list import DNS, FILE, EngineListError, ListedEngine

ASK_SECONDS = 10.0  # the longest wait for the DNS

Resolve = Callable[[str], Awaitable[list[str]]]


async def addresses(host: str) -> list[str]:
    """The addresses of a host, sorted. Those of IPv4 if it has any, since an engine may have one of each. Raises OSError."""
    async with asyncio.timeout(ASK_SECONDS):
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    of_family = {family: {str(where[0]) for kind, *_, where in found if kind == family} for family, *_ in found}
    return sorted(of_family.get(socket.AF_INET) or of_family.get(socket.AF_INET6) or ())


async def find(spec: str, resolve: Resolve = addresses) -> list[ListedEngine]:
    """The engines that are there now, at least one; those found by DNS have no name yet. Raises EngineListError."""
    if spec.startswith(FILE):
        return await asyncio.to_thread(_read, spec.removeprefix(FILE))
    host, ports = engine_list.dns_query(spec)
    try:
        found = await resolve(host)
    except (TimeoutError, OSError, UnicodeError) as error:
        raise _nothing(spec, host, cause(error)) from error
    if not found:
        raise _nothing(spec, host, "it has no address")
    return [ListedEngine(processes.address(address, port)) for port in ports for address in found]


def _read(path: str) -> list[ListedEngine]:
    place = Path(path).expanduser()
    try:
        return engine_list.of_file(place.read_text(), str(place))
    except (OSError, UnicodeDecodeError) as error:
        remedy = "Correct the path in SLACKWATER_ENGINES; it is relative to the folder in which the worker starts."
        raise EngineListError(f"{place} cannot be read: {cause(error)}.", remedy) from error


def _nothing(spec: str, host: str, reason: str) -> EngineListError:
    return EngineListError(
        f"SLACKWATER_ENGINES={spec} finds no engine: {host}: {reason}.",
        f"`getent hosts {host}` must list the engines. In Kubernetes the selector of that Service must match their pods.",
    )


def of_dns(spec: str) -> bool:
    """Whether the engines are found by DNS, which gives them no names."""
    return spec.startswith(DNS)
