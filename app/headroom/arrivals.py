"""Which synchronous requests are in the engine, by the gateways' word: announced, decoding, done. Pure.

Messages of one request may overtake each other, and any of them may be lost: what ends before it is announced is never
entered. Where messages stay away, the engine's own word counts: `observed` takes what a scrape shows. What never ends
is forgotten after `expire_seconds`. Seconds are of one monotonic clock.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

ANNOUNCING = "arrivals"  # purpose of the bearer token that gateways show to workers
RECENT = 512  # latencies kept of each kind
SENT_SECONDS = 2.0  # so long after its announcement a request has reached the engine, or never will
_MOST_EARLY = 1024  # messages kept that came before their request's announcement


@dataclass(frozen=True, slots=True)
class SyncLoad:
    """Synchronous requests at one moment.

    `open` requests, of which `awaiting` have no first token yet, with `awaiting_tokens` of prompt between them;
    `context_tokens` are prompt and output so far of the others, both estimated. `last_arrival`: second of the newest
    announcement, -inf if there was none.
    """

    open: int = 0
    awaiting: int = 0
    awaiting_tokens: int = 0
    context_tokens: int = 0
    last_arrival: float = -math.inf


@dataclass(frozen=True, slots=True)
class SyncLatency:
    """Milliseconds over the last requests; NaN where none was measured. The percentiles of ITL are those of the requests' own."""

    ttft_p50: float
    ttft_p95: float
    itl_p50: float
    itl_p95: float


@dataclass(slots=True)
class _Entry:
    prompt_tokens: int
    max_tokens: int
    since: float
    first_token: float | None = None


class Arrivals:
    """The ledger of one engine. Unknown ids are ignored."""

    def __init__(self, expire_seconds: float) -> None:
        self._expire = expire_seconds
        self._open: dict[str, _Entry] = {}
        self._early: dict[str, float | None] = {}  # id: second of the first token, None: finished
        self._last = -math.inf
        self._ttft: deque[float] = deque(maxlen=RECENT)
        self._itl_p50: deque[float] = deque(maxlen=RECENT)
        self._itl_p95: deque[float] = deque(maxlen=RECENT)

    def arrived(self, request_id: str, prompt_tokens: int, max_tokens: int, now: float) -> None:
        """A request is about to be sent to the engine."""
        self._last = now
        if request_id in self._open:
            return
        first_token = self._early.pop(request_id, math.nan)
        if first_token is None:
            return
        known = None if math.isnan(first_token) else first_token
        self._open[request_id] = _Entry(prompt_tokens, max_tokens, now, known)

    def first_token(self, request_id: str, now: float, ttft_ms: float | None = None) -> None:
        """The engine answers it."""
        if ttft_ms is not None:
            self._ttft.append(ttft_ms)
        entry = self._open.get(request_id)
        if entry is None:
            self._early.setdefault(request_id, now)
            self._forget_early()
        elif entry.first_token is None:
            entry.first_token = now

    def finished(
        self, request_id: str, now: float, itl_p50_ms: float | None = None, itl_p95_ms: float | None = None
    ) -> None:
        """It is over, whichever way."""
        if itl_p50_ms is not None:
            self._itl_p50.append(itl_p50_ms)
        if itl_p95_ms is not None:
            self._itl_p95.append(itl_p95_ms)
        if self._open.pop(request_id, None) is None:
            self._early[request_id] = None
            self._forget_early()

    def observed(self, sampled_at: float, waiting: int, others: int) -> None:
        """A scrape begun at `sampled_at` shows that so many wait in the engine, and so many in it are not ours.

        With nobody waiting, no prompt that was sent before is awaited any longer, told or not; with nobody there, all is over.
        """
        sent = [(i, entry) for i, entry in self._open.items() if entry.since < sampled_at - SENT_SECONDS]
        for request_id, entry in sent:
            if not others:
                del self._open[request_id]
            elif not waiting and entry.first_token is None:
                entry.first_token = sampled_at

    def load(self, now: float) -> SyncLoad:
        """What is open now, after forgetting what is older than any request may be."""
        for request_id in [i for i, entry in self._open.items() if now - entry.since > self._expire]:
            del self._open[request_id]
        awaiting = [entry.prompt_tokens for entry in self._open.values() if entry.first_token is None]
        pace = median(self._itl_p50) / 1000 if self._itl_p50 else math.inf
        context = sum(_context(entry, pace, now) for entry in self._open.values())
        return SyncLoad(len(self._open), len(awaiting), sum(awaiting), context, self._last)

    def latency(self) -> SyncLatency:
        """How the last requests fared."""
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
    """The smallest value that `share` of all do not exceed; NaN of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def _context(entry: _Entry, pace: float, now: float) -> int:
    """Tokens that a decoding request holds: its prompt, and what came since its first token at the usual pace."""
    if entry.first_token is None:
        return 0
    said = (now - entry.first_token) / pace if pace > 0 else math.inf
    return entry.prompt_tokens + int(min(entry.max_tokens, 1 + max(0.0, said)))
