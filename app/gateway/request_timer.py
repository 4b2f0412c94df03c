"""Measures one synchronous request: time to first token (TTFT), inter-token latency (ITL), and duration.

All times are seconds of the monotonic clock.
"""

from collections.abc import Sequence

from app import clock
from app.gateway.metrics import DURATION, ITL, SYNC, TTFT
from app.headroom.arrivals import percentile

_MOST_GAPS = 4096  # kept for the percentiles; the histogram gets all


class RequestTimer:
    """A timer that starts when it is created."""

    def __init__(self, model: str, *, streamed: bool) -> None:
        self._streamed = streamed
        self.output_tokens = 0
        self._labels = (SYNC, model)
        self.first_token_ms: float | None = None
        self._began = clock.monotonic()
        self._last: float | None = None
        self._gaps: list[float] = []

    def token(self) -> float | None:
        """Record an event with tokens. For the first one, observe TTFT and return it in milliseconds; else return None."""
        now, before = clock.monotonic(), self._last
        self._last = now
        self.output_tokens += 1  # an estimate until the engine reports its usage
        if before is None:
            TTFT.labels(*self._labels).observe(now - self._began)
            self.first_token_ms = (now - self._began) * 1000
            return self.first_token_ms
        ITL.labels(*self._labels).observe(now - before)
        if len(self._gaps) < _MOST_GAPS:
            self._gaps.append(now - before)
        return None

    @property
    def gaps(self) -> Sequence[float]:
        """Seconds between its events with tokens, the first ones of many."""
        return self._gaps

    @property
    def elapsed_ms(self) -> float:
        """Since the request began."""
        return (clock.monotonic() - self._began) * 1000

    def end(self) -> None:
        """Record that the answer is complete."""
        DURATION.labels(*self._labels, "yes" if self._streamed else "no").observe(clock.monotonic() - self._began)

    def itl_ms(self, share: float) -> float | None:
        """This percentile of the gaps in milliseconds; None if there were none."""
        return percentile(self._gaps, share) * 1000 if self._gaps else None
