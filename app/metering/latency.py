"""How long synchronous callers wait, by minute: with batch work beside them in the engine, and alone.

Each API process counts its own streamed answers. It stores what it has counted every ten seconds; a process that is killed loses
at most that. The ledger has the same latencies by hour and line, but does not know what ran beside.
"""

import itertools
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from app import clock
from app.db.pool import Connection, Database
from app.db.repeated import repeated
from app.metering import latency_sql as sql
from app.metering import sketch

STORE_SECONDS = 10.0
KEPT_DAYS = 8  # a week, and the day that is compared with it
MOST_GAPS = 64  # of one answer that are counted, evenly spread
_MOST_MINUTES = 1000  # that are kept while the database is away

_log = structlog.get_logger("latency")
_Key = tuple[datetime, str, bool]


@dataclass(slots=True)
class _Minute:
    """Answers of one minute, and the buckets of their times."""

    requests: int = 0
    first_token: Counter[int] = field(default_factory=Counter)
    gap: Counter[int] = field(default_factory=Counter)
    stored: int = -1  # requests when it was stored last


class MinuteLatencies:
    """The latencies of one process. Run `keeping` around its life."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writer = uuid.uuid4().hex[:12]
        self._minutes: dict[_Key, _Minute] = {}

    def add(self, model: str, *, beside: bool, first_token_ms: float, gaps: Sequence[float]) -> None:
        """Count one streamed answer. `beside`: batch requests were in its engine. `gaps`: seconds between its tokens."""
        key = clock.now().replace(second=0, microsecond=0), model, beside
        if key not in self._minutes and len(self._minutes) >= _MOST_MINUTES:
            return
        found = self._minutes.setdefault(key, _Minute())
        found.requests += 1
        found.first_token[sketch.bucket(first_token_ms)] += 1
        step = -(-len(gaps) // MOST_GAPS) or 1
        found.gap.update(sketch.bucket(gap * 1000) for gap in itertools.islice(gaps, 0, None, step))

    def keeping(self) -> AbstractAsyncContextManager[None]:
        """Store every ten seconds, and once more at the end."""
        return repeated(self.store, STORE_SECONDS, _log, "latency.not_stored")

    async def store(self) -> None:
        """Store what was counted since. Forget the minutes that are over. Raises database errors."""
        now = clock.now().replace(second=0, microsecond=0)
        for key in sorted(self._minutes):
            found = self._minutes[key]
            if found.requests != found.stored:
                await self._store(key, found)
            if key[0] < now and found.requests == found.stored:
                del self._minutes[key]

    async def _store(self, key: _Key, found: _Minute) -> None:
        minute, model, beside = key
        requests = found.requests
        values = {"minute": minute, "writer": self._writer, "model": model, "beside": beside, "requests": requests}
        values |= {"first_token": _pairs(found.first_token), "gap": _pairs(found.gap)}
        async with self._database.relaxed() as conn:
            await conn.execute(sql.STORE, values)
        found.stored = requests


def _pairs(counts: Counter[int]) -> list[int]:
    return [number for pair in sorted(counts.items()) for number in pair]


@dataclass(slots=True)
class Latency:
    """The sketches of the answers of a model in one stretch of time. `start`: its begin."""

    start: datetime
    beside: bool
    model: str
    requests: int = 0
    first_token: list[int] = field(default_factory=sketch.empty)
    gap: list[int] = field(default_factory=sketch.empty)


async def read(
    conn: Connection,
    since: datetime,
    stretch: float,
    model: str | None = None,
    *,
    days: int = 0,
    until: datetime | None = None,
) -> list[Latency]:
    """The latencies since then, in stretches of so many seconds, of one model or of all; first by time, then alone first,
    then by model.

    `days`: also those of the same hours so many days before. Then `since` is at most a day before `until`, which is now if it is
    None.
    """
    values = {"since": since, "until": until or clock.now(), "stretch": stretch, "model": model, "days": days}
    found: dict[tuple[datetime, bool, str], Latency] = {}
    for *of, requests, first_token, gap in await (await conn.execute(sql.READ, values)).fetchall():
        each = found.setdefault(tuple(of), Latency(*of))
        each.requests += requests
        _add(each.first_token, first_token)
        _add(each.gap, gap)
    return [found[key] for key in sorted(found)]


def _add(counts: list[int], pairs: Sequence[int]) -> None:
    for index, count in zip(pairs[::2], pairs[1::2], strict=True):
        counts[index] += count


async def forget_old(conn: Connection) -> None:
    """Delete what is older than KEPT_DAYS."""
    await conn.execute(sql.FORGET_OLD, {"days": KEPT_DAYS})
