"""What our own streams tell about an engine whose page counts no steps: seconds per token, and waits for a first token. Pure.

A stream gets a token at each step, so the time between two of its tokens is the length of a step. Streams are looked at at
each tick of the controller. Times are seconds of one monotonic clock.
"""

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)

WINDOW_SECONDS = 0.2  # seconds per token are means over this time
SLOW_SECONDS = 4.0  # with fewer tokens than streams, the window is at most this long
FIRST_TOKEN_SECONDS = 1.0  # a wait for the first token that never closes the gate
FIRST_TOKEN_STRETCH = 4.0  # beyond that, a wait closes it if it is so many times the usual one
RECENT = 64


@dataclass(frozen=True, slots=True)
class StreamState:
    """One stream of ours: when it was sent, and how many tokens it has brought."""

    since: float
    received: int


@dataclass(frozen=True, slots=True)
class Pace:
    """Over the last `elapsed` seconds each of `streams` got a token every `seconds` on average."""

    elapsed: float
    streams: int
    seconds: float


@dataclass(frozen=True, slots=True)
class FirstTokenWait:
    """The longest present wait for a first token, and the wait that is too long."""

    seconds: float
    limit: float

    @property
    def late(self) -> bool:
        """Whether it takes too long."""
        return self.seconds > self.limit


class StreamPace:
    """Measures the pace of streams. A stream counts from its first token on."""

    def __init__(self) -> None:
        self._began: dict[Hashable, tuple[float, int]] = {}
        self._since = 0.0

    def observe(self, now: float, streams: Mapping[Key, StreamState]) -> Pace | None:
        """The pace since the last one that was returned; None while the window is not over."""
        if not self._began:
            self._since = now
        flowing = {key: stream for key, stream in streams.items() if stream.received}
        self._began = {key: self._began.get(key, (now, stream.received)) for key, stream in flowing.items()}
        elapsed = now - self._since
        if not flowing or elapsed < WINDOW_SECONDS:
            return None
        seconds = sum(now - self._began[key][0] for key in flowing)
        tokens = sum(stream.received - self._began[key][1] for key, stream in flowing.items())
        if tokens < len(flowing) and elapsed < SLOW_SECONDS:
            return None
        self._began = {key: (now, stream.received) for key, stream in flowing.items()}
        self._since = now
        return Pace(elapsed, len(flowing), seconds / max(tokens, 1)) if seconds > 0 else None


class FirstTokens:
    """Learns how long first tokens usually take, and says when one takes too long: the engine has a queue."""

    def __init__(self) -> None:
        self._usual: deque[float] = deque(maxlen=RECENT)
        self._waiting: set[Hashable] = set()

    def observe(self, now: float, streams: Mapping[Key, StreamState], others: float = 0.0) -> FirstTokenWait:
        """`others`: the wait of synchronous requests just now, as gateways measured it; 0: unknown."""
        for key, stream in streams.items():
            if key in self._waiting and stream.received:
                self._usual.append(now - stream.since)
        waits = {key: now - stream.since for key, stream in streams.items() if not stream.received}
        self._waiting = set(waits)
        usual = (
            sorted(self._usual)[len(self._usual) // 4] if self._usual else 0.0
        )  # a quartile: a queue must not become usual
        return FirstTokenWait(max(others, *waits.values(), 0.0), max(FIRST_TOKEN_SECONDS, FIRST_TOKEN_STRETCH * usual))
