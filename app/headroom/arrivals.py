"""The synchronous requests that gateways announce, and the TTFT and ITL that they measure (`app/gateway/relay.py`). Pure.

Times are seconds of one monotonic clock.

The messages of one request may arrive in any order, and each may be lost. A request that ends before it is announced is never
added. `observed` corrects lost messages by a scrape of the engine. A request that never ends is removed after
`expire_seconds`.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Literal

ANNOUNCING = "arrivals"  # purpose of the bearer token that gateways send to workers
RECENT = 512  # latencies of each kind that are kept
SENT_SECONDS = 2.0  # this long after its announcement a request has reached the engine or never will
Reported = Literal["first_token", "gap"]
Watch = Callable[[Reported, float, float], None]  # what was reported, in seconds, and the second at which it began
_MOST_EARLY = 1024  # kept messages that came before the announcement of their request


@dataclass(frozen=True, slots=True)
class SyncLoad:
    """Synchronous requests at one moment.

    `open`: requests. `awaiting`: those without a first token, with `awaiting_tokens` of prompts in total. `context_tokens`:
    prompts and outputs so far of the others, estimated. `last_arrival`: second of the last announcement, -inf if there was
    none.
    """

    open: int = 0
    awaiting: int = 0
    awaiting_tokens: int = 0
    context_tokens: int = 0
    last_arrival: float = -math.inf


@dataclass(frozen=True, slots=True)
class SyncLatency:
    """Milliseconds over the last requests; NaN if none was measured. ITL is the percentile of each request's own percentile."""

    ttft_p50: float
    ttft_p95: float
    itl_p50: float
    itl_p95: float


@dataclass(frozen=True, slots=True)
class RecentLatency:
    """Seconds of the synchronous requests that reported in the last moment: the longest TTFT, and the longest median gap between
    two tokens. 0: none reported one.
    """

    first_token: float = 0.0
    gap: float = 0.0


@dataclass(slots=True)
class _Entry:
    prompt_tokens: int
    max_tokens: int
    since: float
    first_token: float | None = None


class Arrivals:
    """The announced requests of one engine. Unknown ids are ignored. `watch` gets each TTFT, and each stream's median gap."""

    def __init__(self, expire_seconds: float, watch: Watch = lambda what, seconds, began: None) -> None:
        self._expire = expire_seconds
        self._watch = watch
        self._open: dict[str, _Entry] = {}
        self._early: dict[str, float | None] = {}  # id: second of the first token, None: finished
        self._last = -math.inf
        self._ttft: deque[float] = deque(maxlen=RECENT)
        self._itl_p50: deque[float] = deque(maxlen=RECENT)
        self._itl_p95: deque[float] = deque(maxlen=RECENT)
        self._reported: deque[tuple[float, RecentLatency]] = deque(maxlen=RECENT)

    def arrived(self, request_id: str, prompt_tokens: int, max_tokens: int, now: float) -> None:
        """Note a request that is about to be sent to the engine."""
        self._last = now
        if request_id in self._open:
            return
        first_token = self._early.pop(request_id, math.nan)
        if first_token is None:
            return
        known = None if math.isnan(first_token) else first_token
        self._open[request_id] = _Entry(prompt_tokens, max_tokens, now, known)

    def first_token(self, request_id: str, now: float, ttft_ms: float | None = None) -> None:
        """Note the first token of a request."""
        if ttft_ms is not None:
            self._ttft.append(ttft_ms)
            self._reported.append((now, RecentLatency(first_token=ttft_ms / 1000)))
            self._watch("first_token", ttft_ms / 1000, now - ttft_ms / 1000)
        entry = self._open.get(request_id)
        if entry is None:
            self._early.setdefault(request_id, now)
            self._forget_early()
        elif entry.first_token is None:
            entry.first_token = now

    def finished(
        self, request_id: str, now: float, itl_p50_ms: float | None = None, itl_p95_ms: float | None = None
    ) -> None:
        """Note the end of a request, with or without an error."""
        if itl_p50_ms is not None:
            self._itl_p50.append(itl_p50_ms)
            self._reported.append((now, RecentLatency(gap=itl_p50_ms / 1000)))
            entry = self._open.get(request_id)
            self._watch("gap", itl_p50_ms / 1000, now if entry is None else entry.first_token or entry.since)
        if itl_p95_ms is not None:
            self._itl_p95.append(itl_p95_ms)
        if self._open.pop(request_id, None) is None:
            self._early[request_id] = None
            self._forget_early()

    def observed(self, sampled_at: float, waiting: int, beyond: int) -> None:
        """A scrape that began at `sampled_at` shows `waiting` requests, and `beyond` that are not our present ones.

        If none waits, every request sent before has its first token. If there is none beyond ours, every one has ended: one that
        may be ours and gone may as well be an announced one.
        """
        sent = [(i, entry) for i, entry in self._open.items() if entry.since < sampled_at - SENT_SECONDS]
        for request_id, entry in sent:
            if not beyond:
                del self._open[request_id]
            elif not waiting and entry.first_token is None:
                entry.first_token = sampled_at

    def load(self, now: float) -> SyncLoad:
        """The open requests, after removing those that are older than any request can be."""
        for request_id in [i for i, entry in self._open.items() if now - entry.since > self._expire]:
            del self._open[request_id]
        awaiting = [entry.prompt_tokens for entry in self._open.values() if entry.first_token is None]
        pace = median(self._itl_p50) / 1000 if self._itl_p50 else math.inf
        context = sum(_context(entry, pace, now) for entry in self._open.values())
        return SyncLoad(len(self._open), len(awaiting), sum(awaiting), context, self._last)

    def recent(self, now: float) -> RecentLatency:
        """What was reported in the last two seconds."""
        last = [latency for at, latency in self._reported if now - at < SENT_SECONDS]
        return RecentLatency(
            max((entry.first_token for entry in last), default=0.0), max((entry.gap for entry in last), default=0.0)
        )

    def latency(self) -> SyncLatency:
        """TTFT and ITL of the last requests."""
        return SyncLatency(
            percentile(self._ttft, 0.5),
            percentile(self._ttft, 0.95),
            percentile(self._itl_p50, 0.5),
            percentile(self._itl_p95, 0.95),
        )

    def _forget_early(self) -> None:
        while len(self._early) > _MOST_EARLY:
            del self._early[next(iter(self._early))]


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that a `share` of all values does not exceed; NaN without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def _context(entry: _Entry, pace: float, now: float) -> int:
    """Tokens of a decoding request: its prompt, and the output since its first token at the median pace."""
    if entry.first_token is None:
        return 0
    generated = (now - entry.first_token) / pace if pace > 0 else math.inf
    return entry.prompt_tokens + int(min(entry.max_tokens, 1 + max(0.0, generated)))
