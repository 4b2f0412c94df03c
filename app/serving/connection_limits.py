"""Limits on connections, for one address and in total, and a reserve for monitoring.

When a limit is reached, the connection that has been idle longest is closed. So a client that opens many idle connections
loses them, and no other client waits. Pure: the caller owns the connections.
"""

import resource
from collections import Counter, OrderedDict, defaultdict
from contextlib import suppress
from enum import Enum
from ipaddress import IPv6Address, ip_address
from typing import Protocol

from app.settings import Settings

RESERVE = 16  # connections above the limit, on which only RESERVED is answered
RESERVED = ("/health", "/ready", "/metrics", "/console/health")
_OWN_FILES = 128  # connections to the database, listening sockets, logs
_MOST_FILES = 1 << 20  # where there is no hard limit


class ConnectionEntry(Enum):
    """The decision about a new connection."""

    FREE = "free"
    RESERVE = "reserve"
    REFUSED = "refused"


class Connection(Protocol):
    """A connection, for `ConnectionLimits`."""

    def drop(self) -> None:
        """Close it at once, without an answer."""


class ConnectionLimits:
    """The connections of one server."""

    def __init__(self, most: int, most_per_address: int) -> None:
        self._most, self._most_per_address = most, most_per_address
        self._address: dict[Connection, str] = {}
        self._count_of: Counter[str] = Counter()
        self._idle: OrderedDict[Connection, None] = OrderedDict()
        self._idle_of: defaultdict[str, OrderedDict[Connection, None]] = defaultdict(OrderedDict)

    def enter(self, one: Connection, host: str) -> ConnectionEntry:
        """Add a new, idle connection. An older idle one may be closed for it."""
        address = _address_of(host)
        if self._count_of[address] >= self._most_per_address and not self._make_room(self._idle_of.get(address)):
            return ConnectionEntry.REFUSED
        full = not self._room_below(self._most)
        if full and not self._room_below(self._most + RESERVE):
            return ConnectionEntry.REFUSED
        self._address[one] = address
        self._count_of[address] += 1
        self.rest(one)
        return ConnectionEntry.RESERVE if full else ConnectionEntry.FREE

    def rest(self, one: Connection) -> None:
        """The connection has no request in progress from now on."""
        if one in self._address and one not in self._idle:
            self._idle[one] = self._idle_of[self._address[one]][one] = None

    def work(self, one: Connection) -> None:
        """The connection has a request in progress."""
        if self._idle.pop(one, one) is None:
            address = self._address[one]
            del self._idle_of[address][one]
            if not self._idle_of[address]:
                del self._idle_of[address]

    def leave(self, one: Connection) -> None:
        """The connection is closed. A repeated call has no effect."""
        self.work(one)
        address = self._address.pop(one, None)
        if address is not None:
            self._count_of[address] -= 1
            if not self._count_of[address]:
                del self._count_of[address]

    def _room_below(self, bound: int) -> bool:
        """Close the longest idle connections until fewer than `bound` are left. False, and none closed, if too few are idle."""
        beyond = len(self._address) - bound + 1
        if beyond > len(self._idle):
            return False
        for _ in range(beyond):
            self._make_room(self._idle)
        return True

    def _make_room(self, idle: OrderedDict[Connection, None] | None) -> bool:
        if not idle:
            return False
        oldest = next(iter(idle))
        self.leave(oldest)
        oldest.drop()
        return True


def _address_of(host: str) -> str:
    """The address that is limited; for IPv6 it is the network of one subscriber (/64)."""
    try:
        address = ip_address(host)
    except ValueError:
        return host  # a Unix socket's
    if isinstance(address, IPv6Address) and not address.ipv4_mapped:
        return address.packed[:8].hex()
    return host


def raise_file_limit() -> int:
    """Raise this process's limit of open files to the hard limit. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _MOST_FILES if hard == resource.RLIM_INFINITY else hard
    with suppress(ValueError, OSError):  # macOS reports no limit but has one
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_FILES if soft == resource.RLIM_INFINITY else soft


def backlog(files: int) -> int:
    """Connections that the kernel may queue. Each takes a file before it can be refused."""
    return max(16, min(2048, files // 4))


def limits_of(settings: Settings, files: int) -> ConnectionLimits:
    """The limits in the settings, reduced to what `files` allow: a request may need a second file, for an engine or a spool."""
    most = max(1, min(settings.connections, (files - backlog(files) - RESERVE - _OWN_FILES) // 2))
    return ConnectionLimits(most, min(most, settings.connections_per_address or max(1, most // 2)))
