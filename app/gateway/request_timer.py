"""Times one synchronous request: first token, gaps, end. Seconds of the monotonic clock."""

from app import clock
from app.gateway.metrics import DURATION, ITL, SYNC, TTFT
from app.headroom.arrivals import percentile

_MOST_GAPS = 4096  # kept for the percentiles; the histogram has all


class RequestTimer:
    """Starts when it is made."""

    def __init__(self, model: str, *, streamed: bool) -> None:
        self._streamed = streamed
        self.output_tokens = 0
        self._labels = (SYNC, model)
        self._began = clock.monotonic()
        self._last: float | None = None
        self._gaps: list[float] = []

    def token(self) -> float | None:
        """An event with tokens has come. Returns the milliseconds to the first one, when it is that."""
        now, before = clock.monotonic(), self._last
        self._last = now
        self.output_tokens += 1  # until the engine says how many there were
        if before is None:
            TTFT.labels(*self._labels).observe(now - self._began)
            return (now - self._began) * 1000
        ITL.labels(*self._labels).observe(now - before)
        if len(self._gaps) < _MOST_GAPS:
            self._gaps.append(now - before)
        return None

    def end(self) -> None:
        """The answer is complete."""
        DURATION.labels(*self._labels, "yes" if self._streamed else "no").observe(clock.monotonic() - self._began)

    def itl_ms(self, share: float) -> float | None:
        """This percentile of the gaps in milliseconds; None if there were none."""
        return percentile(self._gaps, share) * 1000 if self._gaps else None
