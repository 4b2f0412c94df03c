"""The demand for engines of a model, for autoscalers: `GET /scale/{model}`. The steward looks (`app.queue.pool_status`)."""

import asyncio
import math
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from app import clock
from app.batches import scale_sql as sql
from app.batches.wanted_engines import Due, wanted
from app.db.pool import Connection, Database
from app.db.transient_errors import TRANSIENT
from app.errors import DemandUnknown

FRESH_SECONDS = 1.0
STALE_SECONDS = 60.0  # an older demand is not answered, so that the autoscaler keeps the engines that there are
PATIENCE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Demand:
    """What is due in the pool of a model at one moment.

    `tokens_per_second`: of one engine, in estimated tokens; None: not measured. `start_seconds`: the longest start that a worker
    measured; None: none did. `ready`: engines that serve it. `age`: seconds since the steward saw all this; infinite: never.
    """

    due: tuple[Due, ...] = ()
    tokens_per_second: float | None = None
    start_seconds: float | None = None
    ready: int = 0
    age: float = 0.0


async def read(conn: Connection, model: str) -> Demand:
    """The demand for a model of the catalogue. A model that no engine ever served has none."""
    row = await (await conn.execute(sql.DEMAND, {"model": model})).fetchone()
    if row is None:
        return Demand()
    speed, start, ready, seconds, tokens, age = row
    if age is None:
        return Demand(age=math.inf)
    return Demand(tuple(map(Due, seconds, tokens)), speed, start, ready, age)


@dataclass
class _Reading:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    demand: Demand | None = None
    moment: float = 0.0
    at: datetime | None = None


class ScaleSignal:
    """The demand of each model, read at most once a second however many autoscalers ask."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._readings: defaultdict[str, _Reading] = defaultdict(_Reading)

    async def document(self, model: str, start_seconds: float | None) -> dict[str, Any]:
        """The answer for a model of the catalogue. `start_seconds`: how long an engine takes to start; None: as measured.

        Raises DemandUnknown (503) if the database has not answered, or the steward has not looked, for a minute.
        """
        reading = self._readings[model]
        async with reading.lock:
            if reading.demand is None or clock.monotonic() - reading.moment >= FRESH_SECONDS:
                await self._renew(model, reading)
            demand = reading.demand
        waited = clock.monotonic() - reading.moment
        if demand is None or waited + demand.age > STALE_SECONDS:
            steward = demand is not None and waited < demand.age
            raise _not_known("No steward has looked at the queue" if steward else "The database does not answer")
        return describe(model, demand, start_seconds, reading.at or clock.now())

    async def _renew(self, model: str, reading: _Reading) -> None:
        began = clock.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), self._database.relaxed() as conn:
                reading.demand = await read(conn, model)
        except (TimeoutError, *TRANSIENT):
            return
        reading.moment, reading.at = began, clock.now()


def describe(model: str, demand: Demand, start_seconds: float | None, at: datetime) -> dict[str, Any]:
    """The document of `GET /scale/{model}`."""
    start = demand.start_seconds or 0.0 if start_seconds is None else start_seconds
    found = wanted(demand.due, demand.tokens_per_second, start)
    return {
        "model": model,
        "wanted": found.engines,
        "ready": demand.ready,
        "tokens_due": round(sum(each.tokens for each in demand.due)),
        "tokens_per_second": demand.tokens_per_second,
        "start_seconds": start,
        "deadline": None if found.seconds is None else clock.iso(at + timedelta(seconds=found.seconds)),
        "at": clock.iso(at),
    }


def _not_known(why: str) -> DemandUnknown:
    message = f"{why}, so it is not known how many engines are needed: keep those that there are"
    return DemandUnknown(message)
