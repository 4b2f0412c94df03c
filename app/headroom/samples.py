"""What each engine did: its worker adds a sample every 10 seconds; the steward folds old ones to minutes.

A sample says what the engine did in some seconds: whose tokens it computed, how many requests it held, and why its gate was as
it was. The decision log has the changes of the allowance; samples have the amounts.
"""

import collections
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta
from statistics import fmean
from typing import Any

from app import clock
from app.db.pool import Connection
from app.headroom import samples_sql as sql

SAMPLE_SECONDS = 10.0
KEPT_HOURS = 26  # then they are folded
MINUTES_KEPT_DAYS = 35
MOST_POINTS = 1000


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of an engine and its worker, which only grow while both live. `inside`: the scheduler in the engine counts."""

    inside: bool = False
    batch_tokens: int = 0
    sync_tokens: int = 0
    yields: int = 0
    evictions: int = 0


@dataclass(frozen=True, slots=True)
class Look:
    """One look at an engine. Requests: `batch`, `sync` in it, `sync_waiting` of these, `frozen` ones of the batch. None: not
    known.
    """

    reason: str
    allowance: int
    batch: int
    sync: int
    sync_waiting: int
    frozen: int
    kv_usage: float | None
    step_ms: float | None
    predicted_ms: float | None
    allowed_ms: float | None


@dataclass(frozen=True, slots=True)
class EngineSample:
    """What an engine did in `seconds`: of these, its gate was closed for `closed_seconds`. The rest are means and sums."""

    reason: str
    allowance: float
    batch: float
    sync: float
    sync_waiting: float
    frozen: float
    kv_usage: float | None
    step_ms: float | None
    predicted_ms: float | None
    allowed_ms: float | None
    seconds: float
    closed_seconds: float
    batch_tokens: int
    sync_tokens: int
    yields: int
    evictions: int


@dataclass(frozen=True, slots=True)
class StoredSample:
    """A sample, and the end of its time."""

    at: datetime
    sample: EngineSample


def callers_rate(tokens: float, seconds: float, callers: float | None) -> float | None:
    """Tokens a second of `callers` in the engine. None: not known. Where no scheduler of ours counts them, they are what the
    engine counts beyond batch work, which shows some seconds later; so none of callers who were there is not 0.
    """
    return None if not seconds or (callers and not tokens) else tokens / seconds


@dataclass(slots=True)
class SampleBuilder:
    """Makes a sample of the looks since the last one. Pure. Seconds are those of one monotonic clock."""

    _looks: list[tuple[float, Look]] = field(default_factory=list)
    _before: Counters | None = None
    _began: float | None = None

    def look(self, now: float, look: Look) -> None:
        """Add a look. It stands for the time since the one before."""
        since = self._looks[-1][0] if self._looks else self._began
        if since is None:
            self._began = now
            return
        self._looks.append((now, look))

    def take(self, counters: Counters) -> EngineSample | None:
        """The sample until the last look; None: there was no look. A counter that has become smaller began anew, and two that
        are counted in different places cannot be compared.
        """
        looks, began = self._looks, self._began
        before = self._before if self._before and self._before.inside == counters.inside else counters
        self._before = counters
        if not looks or began is None:
            return None
        self._looks, self._began = [], looks[-1][0]
        reasons: collections.Counter[str] = collections.Counter()
        closed, last = 0.0, began
        for now, look in looks:
            reasons[look.reason] += 1
            closed += (now - last) * (look.allowance == 0)
            last = now
        means: dict[str, Any] = {name: _mean([getattr(look, name) for _, look in looks]) for name in sql.MEANS}
        if means["sync"]:  # without a caller a step may take many seconds, and that is no budget
            means["allowed_ms"] = _mean([look.allowed_ms for _, look in looks if look.sync])
        grown: dict[str, Any] = {
            f.name: _grown(getattr(before, f.name), getattr(counters, f.name)) for f in fields(Counters)[1:]
        }
        return EngineSample(
            reason=reasons.most_common(1)[0][0], seconds=last - began, closed_seconds=closed, **means, **grown
        )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _grown(before: int, after: int) -> int:
    return after - before if after >= before else after


async def record(conn: Connection, engine_id: int, sample: EngineSample, ended: float) -> None:
    """Store a sample that ended at this monotonic second."""
    values = {"engine_id": engine_id, "age": max(0.0, clock.monotonic() - ended), **asdict(sample)}
    await conn.execute(sql.RECORD, values)


async def fold(conn: Connection) -> None:
    """Fold old samples to minutes, and delete old minutes. A duty's verb."""
    await conn.execute(sql.FOLD, {"hours": KEPT_HOURS})
    await conn.execute(sql.DROP, {"days": MINUTES_KEPT_DAYS})


async def history(
    conn: Connection, engine_id: int, since: datetime, points: int, until: datetime | None = None
) -> list[StoredSample]:
    """What an engine has done since then, and until then, in at most so many stretches of one length, the oldest first."""
    now = clock.now()
    long = now - since > timedelta(hours=KEPT_HOURS)
    stretch = max(60.0 if long else SAMPLE_SECONDS, ((until or now) - since).total_seconds() / points)
    values = {"engine_id": engine_id, "since": since, "until": until, "stretch": stretch}
    rows = await (await conn.execute(sql.MINUTES, values)).fetchall() if long else []
    rows += await (await conn.execute(sql.SAMPLES, values)).fetchall()
    return [StoredSample(at, EngineSample(*sample)) for at, *sample in rows]
