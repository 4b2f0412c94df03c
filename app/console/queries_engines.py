"""Reads of the pages about engines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from app import clock
from app.console import queries_engines_sql as sql
from app.console.queries import EngineRow
from app.db.pool import Connection
from app.headroom import samples
from app.headroom.samples import StoredSample

PAGE_ENGINES = 24
MOST_GATES = 600  # changes of the gate in one drawing
_LATELY = timedelta(minutes=1)
_SUMMARY = 23  # columns of an EngineRow


class Tide(NamedTuple):
    """What an engine did until `at`, in `seconds`: tokens for batches and for callers; why its gate was closed, or as it was."""

    at: datetime
    reason: str
    seconds: float
    closed_seconds: float
    batch_tokens: int
    sync_tokens: int


@dataclass(frozen=True, slots=True)
class EngineDetail:
    """More about one engine. Times are in seconds. `lease`: that its worker's still holds."""

    mode: str
    url: str
    version: str | None
    dialect: str
    scheduling_policy: str | None
    max_model_len: int | None
    served_name: str | None
    start_seconds: float | None
    detail: str | None
    intake_since: datetime
    host: str | None
    pid: int | None
    lease: float | None
    expected: float | None


class Day(NamedTuple):
    """What an engine did in the last 24 hours: seconds that are known, of these with the gate closed, and counts."""

    seconds: float
    closed_seconds: float
    batch_tokens: int
    yields: int
    evictions: int


class GateChange(NamedTuple):
    """The allowance and its reason from `at` on."""

    at: datetime
    allowance: int
    reason: str


async def engines(conn: Connection, after: str = "", limit: int = PAGE_ENGINES) -> tuple[list[EngineRow], bool]:
    """A page of the engines that have a worker, or had one within a day, by name; and whether there are more."""
    rows = await (await conn.execute(sql.PAGE, {"after": after, "limit": limit + 1})).fetchall()
    return [EngineRow(*row) for row in rows[:limit]], len(rows) > limit


async def engine(conn: Connection, name: str) -> tuple[EngineRow, EngineDetail] | None:
    """One engine. None: there is none of this name."""
    row = await (await conn.execute(sql.ONE, {"name": name})).fetchone()
    return None if row is None else (EngineRow(*row[:_SUMMARY]), EngineDetail(*row[_SUMMARY:]))


async def begun(conn: Connection, engine_ids: Sequence[int]) -> Mapping[int, datetime]:
    """When each of these engines served first. One that never did is left out: nothing of it is drawn."""
    rows = await (await conn.execute(sql.BEGUN, {"engine_ids": list(engine_ids)})).fetchall()
    return {engine_id: at for engine_id, at in rows if at is not None}


async def tides(
    conn: Connection, engine_ids: Sequence[int], since: datetime, stretch: float, until: datetime | None = None
) -> Mapping[int, list[Tide]]:
    """What each of these engines did since then and until then, in stretches of so many seconds, the oldest first. A statement
    for each that has served.
    """
    found: dict[int, list[Tide]] = {}
    for engine_id, first in (await begun(conn, engine_ids)).items():
        values = {"engine_id": engine_id, "since": max(since, first), "until": until, "stretch": stretch}
        found[engine_id] = [Tide(*row) for row in await (await conn.execute(sql.TIDE, values)).fetchall()]
    return found


async def history(
    conn: Connection, engine_id: int, since: datetime, points: int, until: datetime | None = None
) -> list[StoredSample]:
    """The samples of an engine in that time, from when it served first."""
    first = (await begun(conn, [engine_id])).get(engine_id)
    return await samples.history(conn, engine_id, max(since, first), points, until) if first else []


async def latest(conn: Connection, engine_id: int) -> StoredSample | None:
    """The newest sample of an engine. None: its worker stored none lately."""
    found = await samples.history(conn, engine_id, clock.now() - _LATELY, samples.MOST_POINTS)
    return found[-1] if found else None


async def day(conn: Connection, engine_id: int, first: datetime) -> Day:
    """The last 24 hours of an engine that served first at that time."""
    [row] = await (await conn.execute(sql.DAY, {"engine_id": engine_id, "begun": first})).fetchall()
    return Day(*row)


async def gates(conn: Connection, engine_id: int, since: datetime) -> list[GateChange]:
    """The newest changes of a gate since then, the oldest first."""
    values = {"engine_id": engine_id, "since": since, "limit": MOST_GATES}
    rows = await (await conn.execute(sql.SINCE, values)).fetchall()
    return [GateChange(*row) for row in reversed(rows)]
