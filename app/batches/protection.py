"""Are synchronous callers protected: how long their tokens take beside batch work, compared with alone.

`Protection.verdict` decides it for the console, the API, `slackwater status` and `top`, the metrics and the alert CallersSlowed.

Alone is what was measured without batch requests in the engine at the same hours of the last seven days, the present one
included. A ratio of fewer than LEAST_STREAMS on either side says nothing. Models are not mixed: of several, the one whose callers
are slowed most is told of.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from app import clock
from app.db.pool import Connection
from app.metering import latency, sketch
from app.metering.latency import Latency
from app.quantities import duration, many, milliseconds

LEAST_STREAMS = 50
LIMIT = 1.25  # callers that take longer than so many times as long as alone are not protected
DAYS = 7
PRESENT = timedelta(hours=1)  # whose callers tell whether callers are protected now


class Verdict(StrEnum):
    """Whether callers are protected. `unmeasured`: too few have streamed beside batch work, or alone."""

    PROTECTED = "protected"
    SLOWED = "slowed"
    UNMEASURED = "unmeasured"


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
    """The times of a model in so many seconds, beside batch work and in all; `alone`: at the same hours of DAYS. `stretches`: the
    first one first.
    """

    model: str
    seconds: float
    everything: Times
    beside: Times
    alone: Times
    stretches: Sequence[Stretch]

    @property
    def measured(self) -> bool:
        """Whether enough has been streamed on both sides to compare them."""
        return min(self.beside.requests, self.alone.requests) >= LEAST_STREAMS

    @property
    def first_token_ratio(self) -> float | None:
        """The time to the first token (p95) beside batch work over that alone. None: not measured."""
        return _ratio(self.beside.first_token_p95, self.alone.first_token_p95) if self.measured else None

    @property
    def gap_ratio(self) -> float | None:
        """The same of the time between two tokens."""
        return _ratio(self.beside.gap_p95, self.alone.gap_p95) if self.measured else None

    @property
    def slowdown(self) -> float | None:
        """The larger ratio. None: not measured."""
        return max((each for each in (self.first_token_ratio, self.gap_ratio) if each is not None), default=None)

    @property
    def verdict(self) -> Verdict:
        """Whether callers are protected."""
        if self.slowdown is None:
            return Verdict.UNMEASURED
        return Verdict.PROTECTED if self.slowdown <= LIMIT else Verdict.SLOWED

    @property
    def headline(self) -> str:
        """The verdict in words."""
        if self.slowdown is None:
            beside, alone = self.beside.requests, self.alone.requests
            streams = many(beside, "stream") if beside else "no stream"
            return f"Protection is not measured yet: {streams} beside batch work, {f'{alone:,}' if alone else 'none'} alone"
        if self.verdict == Verdict.PROTECTED:
            return "Synchronous callers are protected"
        what = "Callers wait" if self.slowdown == self.first_token_ratio else "Callers' tokens take"
        return f"{what} {self.slowdown:.1f} times as long as alone"

    @property
    def details(self) -> str:
        """The numbers of the verdict, in one sentence."""
        if not self.measured:
            return f"It takes {LEAST_STREAMS} of each. What callers wait alone is learned while no batch work is in the engine."
        said = [
            f"{name} {milliseconds(beside)} ms beside batch work, {milliseconds(alone)} ms alone ({beside / alone:.2f} times)"
            for name, beside, alone in (
                ("first token", self.beside.first_token_p95, self.alone.first_token_p95),
                ("between tokens", self.beside.gap_p95, self.alone.gap_p95),
            )
            if beside is not None and alone
        ]
        streams = f"{many(self.beside.requests, 'stream')} beside, {self.alone.requests:,} alone"
        return f"Of {self.model} over {duration(self.seconds)}, at p95: {'; '.join(said)}; {streams}."


async def present(conn: Connection) -> Protection:
    """The protection of the last hour, of all models: what is said of callers where nobody chooses a time."""
    return await read(conn, clock.now() - PRESENT, points=1)


async def gauges(conn: Connection) -> list[tuple[str, str, float]]:
    """The slowdown of `present`, and each verdict as 0 or 1."""
    found = await present(conn)
    verdicts = [("callers", verdict.value, float(found.verdict == verdict)) for verdict in Verdict]
    return verdicts if found.slowdown is None else [*verdicts, ("callers_slowdown_ratio", "", found.slowdown)]


async def read(
    conn: Connection, since: datetime, points: int, model: str | None = None, until: datetime | None = None
) -> Protection:
    """The protection since then, until then or now, in at most so many stretches, of this model or of the one whose callers are
    slowed most.
    """
    end = until or clock.now()
    stretch = max(60.0, (end - since).total_seconds() / points)
    recent = await latency.read(conn, since, stretch, model, until=end)
    usual = await latency.read(conn, max(since, end - timedelta(days=1)), 60, model, days=DAYS, until=end)
    return worst(recent, usual, (end - since).total_seconds(), model or "")


def worst(recent: Sequence[Latency], usual: Sequence[Latency], seconds: float, model: str = "") -> Protection:
    """The protection of the model whose callers are slowed most, or of which most is known; of `model` if nobody called. Pure."""
    found = [
        _of_one(
            name,
            [each for each in recent if each.model == name],
            [each for each in usual if each.model == name],
            seconds,
        )
        for name in sorted({each.model for each in recent or usual} or {model})
    ]
    return max(found, key=lambda each: (each.slowdown or 0.0, each.beside.requests, each.everything.requests))


def _of_one(model: str, recent: Sequence[Latency], usual: Sequence[Latency], seconds: float) -> Protection:
    starts = sorted({each.start for each in recent})
    return Protection(
        model,
        seconds,
        _times(recent),
        _times(each for each in recent if each.beside),
        _times(each for each in usual if not each.beside),
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
