"""Who may be connected: bounds on connections, for one address and in all, and a reserve for an operator's machinery.

A connection on which no request is in progress is the first to go, the longest idle one before others: whoever opens many and
says nothing on them loses those, and nobody else waits. Pure: what a connection is, only its owner knows.
"""

import resource
from collections import Counter, OrderedDict, defaultdict
from contextlib import suppress
from enum import Enum
from ipaddress import IPv6Address, ip_address
from typing import Protocol

from app.settings import Settings

RESERVE = 16  # connections beyond the bound, on which only RESERVED is answered
RESERVED = ("/health", "/ready", "/metrics")
_OWN_FILES = 128  # connections to the database, listening sockets, logs
_MOST_FILES = 1 << 20  # where the hard limit is none


class Admission(Enum):
    """What becomes of a new connection."""

    FREE = "free"
    RESERVE = "reserve"
    REFUSED = "refused"


class Connection(Protocol):
    """What `Room` needs of a connection."""

    def drop(self) -> None:
        """Close it at once, without a word."""


class ConnectionLimits:
    """The connections of one server."""

    def __init__(self, most: int, most_per_address: int) -> None:
        self._most, self._most_per_address = most, most_per_address
        self._address: dict[Connection, str] = {}
        self._held: Counter[str] = Counter()
        self._idle: OrderedDict[Connection, None] = OrderedDict()
        self._idle_of: defaultdict[str, OrderedDict[Connection, None]] = defaultdict(OrderedDict)

    def enter(self, one: Connection, host: str) -> Admission:
        """Take a new, idle connection, for which an older idle one may have to go."""
        address = _household(host)
        if self._held[address] >= self._most_per_address and not self._make_room(self._idle_of.get(address)):
            return Admission.REFUSED
        full = not self._room_below(self._most)
        if full and not self._room_below(self._most + RESERVE):
            return Admission.REFUSED
        self._address[one] = address
        self._held[address] += 1
        self.rest(one)
        return Admission.RESERVE if full else Admission.FREE

    def rest(self, one: Connection) -> None:
        """No request is in progress on it from now on."""
        if one in self._address and one not in self._idle:
            self._idle[one] = self._idle_of[self._address[one]][one] = None

    def work(self, one: Connection) -> None:
        """A request is in progress on it."""
        if self._idle.pop(one, one) is None:
            address = self._address[one]
            del self._idle_of[address][one]
            if not self._idle_of[address]:
                del self._idle_of[address]

    def leave(self, one: Connection) -> None:
        """It is closed; said again, this does nothing."""
        self.work(one)
        address = self._address.pop(one, None)
        if address is not None:
            self._held[address] -= 1
            if not self._held[address]:
                del self._held[address]

    def _room_below(self, bound: int) -> bool:
        """Whether there are fewer connections than that, or were once idle ones had gone; those have gone then."""
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


def _household(host: str) -> str:
    """What counts as one address: of IPv6 the network that one subscriber has."""
    try:
        address = ip_address(host)
    except ValueError:
        return host  # a Unix socket's
    if isinstance(address, IPv6Address) and not address.ipv4_mapped:
        return address.packed[:8].hex()
    return host


def raise_file_limit() -> int:
    """Let this process open as many files as it may at all. Returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else hard
    with suppress(ValueError, OSError):  # macOS says that there is no limit, and has one
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_FILES if soft == resource.RLIM_INFINITY else soft


def backlog(files: int) -> int:
    """Connections that the kernel may hand over in one go; all of them take a file before one of them can be refused."""
    return max(16, min(2048, files // 4))


def room(settings: Settings, files: int) -> ConnectionLimits:
    """Room as the settings have it, as far as `files` reach: a request may need a second one, to an engine or a spool."""
    most = max(1, min(settings.connections, (files - backlog(files) - RESERVE - _OWN_FILES) // 2))
    return ConnectionLimits(most, min(most, settings.connections_per_address or max(1, most // 2)))
