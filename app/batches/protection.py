"""Are synchronous callers protected: how long their tokens take beside batch work, compared with alone.

Alone is what was measured without batch requests in the engine at the same hours of the last seven days. With fewer than
LEAST_MINUTES such minutes it is not known.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app import clock
from app.db.pool import Connection
from app.metering import latency, sketch
from app.metering.latency import Latency

LEAST_MINUTES = 20
DAYS = 7


@dataclass(frozen=True, slots=True)
class Times:
    """Quantiles in milliseconds of so many answers: to the first token, and between tokens. None: nothing was measured."""

    requests: int
    first_token_p50: float | None
    first_token_p95: float | None
    gap_p50: float | None
    gap_p95: float | None


@dataclass(frozen=True, slots=True)
class Stretch:
    """The times of one stretch, which begins at `start`."""

    start: datetime
    beside: Times
    alone: Times


@dataclass(frozen=True, slots=True)
class Protection:
    """The times since a moment, beside batch work and in all; `usual`: alone, at the same hours; None: not known. `stretches`:
    the first one first.
    """

    everything: Times
    beside: Times
    usual: Times | None
    stretches: Sequence[Stretch]

    @property
    def first_token_ratio(self) -> float | None:
        """The time to the first token (p95) beside batch work over that alone. None: one of them is not known."""
        return _ratio(self.beside.first_token_p95, self.usual.first_token_p95 if self.usual else None)

    @property
    def gap_ratio(self) -> float | None:
        """The same of the time between two tokens."""
        return _ratio(self.beside.gap_p95, self.usual.gap_p95 if self.usual else None)


async def read(
    conn: Connection, since: datetime, points: int, model: str | None = None, until: datetime | None = None
) -> Protection:
    """The protection since then, until then or now, in at most so many stretches, of one model or of all."""
    end = until or clock.now()
    stretch = max(60.0, (end - since).total_seconds() / points)
    recent = await latency.read(conn, since, stretch, model, until=end)
    usual = await latency.read(conn, max(since, end - timedelta(days=1)), 60, model, days=DAYS, until=end)
    return summary(recent, usual)


def summary(recent: Sequence[Latency], usual: Sequence[Latency]) -> Protection:
    """The protection from stretches, and from the minutes with which they are compared. Pure."""
    alone = [each for each in usual if not each.beside]
    starts = sorted({each.start for each in recent})
    return Protection(
        _times(recent),
        _times(each for each in recent if each.beside),
        _times(alone) if len(alone) >= LEAST_MINUTES else None,
        [
            Stretch(
                start,
                _times(each for each in recent if each.start == start and each.beside),
                _times(each for each in recent if each.start == start and not each.beside),
            )
            for start in starts
        ],
    )


def _times(latencies: Iterable[Latency]) -> Times:
    given = list(latencies)
    first, gap = (sketch.merge([sketch.empty(), *(getattr(each, n) for each in given)]) for n in ("first_token", "gap"))
    quantiles = (sketch.quantile(counts, q) for counts in (first, gap) for q in (0.5, 0.95))
    return Times(sum(each.requests for each in given), *quantiles)


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None
