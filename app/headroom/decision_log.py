"""The decision log: why an engine left more or less to batch work, and when.

`DecisionLog` is a worker's buffer: decisions are made many times a second and never wait for the database, which gets at most
one insert a second.
"""

import asyncio
import collections
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

import structlog

from app import clock
from app.causes import cause
from app.db.pool import Connection, Database
from app.db.transient_errors import TRANSIENT
from app.headroom import sql
from app.headroom.controller import Decision
from app.headroom.gate_rules import CLOSED_BY_FAILURE, Reason

Layer = Literal["l1", "l2"]  # outside the engine, inside it

FLUSH_SECONDS = 1.0
PRUNE_SECONDS = 60.0
PRUNED_AT_ONCE = 5_000
CAPACITY = 2_000
KINDS = tuple(sql.KINDS)
FAILURES = CLOSED_BY_FAILURE | {Reason.PLUGIN_TRIPPED}  # somebody should look
STEADY = frozenset({Reason.OPEN, Reason.RAMP, Reason.FULL})  # between them nothing changes but words
REASON_SECONDS = 1.0  # least time between two rows of which only the reason differs
SIZE_SECONDS = 10.0  # least time after a row until one of which only the allowance differs
MATERIAL = 0.25  # share of the larger allowance by which it then differs at least

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class AllowanceChange:
    """A change of the allowance: `signal` was `value` against `threshold`, with `in_flight` batch requests.

    `credited`: how many of these were admitted after the scrape that decided. `detail`: the error of the telemetry.
    """

    layer: Layer
    was_allowance: int
    allowance: int
    was_reason: str
    reason: str
    signal: str | None
    value: float | None
    threshold: float | None
    in_flight: int
    credited: int
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """A change in the log. `at` is PostgreSQL's time; changes of one time are in the order of their ids."""

    at: datetime
    decision_id: int
    change: AllowanceChange


async def record(
    conn: Connection, engine_id: int, rows: Sequence[tuple[float, AllowanceChange]], *, engine: str = ""
) -> None:
    """Store changes in one statement. Each has the monotonic second of this process at which it was decided.

    Failures that close the gate, and their ends, are also changes of the installation, about the `engine` of this name.
    """
    if not rows:
        return
    now = clock.monotonic()
    columns: dict[str, list[object]] = {
        name: [getattr(change, name) for _, change in rows] for name in sql.GIVEN if name != "age"
    }
    ages = [max(0.0, now - decided_at) for decided_at, _ in rows]
    values = {"engine_id": engine_id, "engine": engine, "failures": sorted(FAILURES), "age": ages, **columns}
    await conn.execute(sql.RECORD, values)


async def recent(
    conn: Connection, engine_id: int, limit: int, *, kind: str = "all", before: tuple[datetime, int] | None = None
) -> list[LoggedChange]:
    """The newest entries of an engine, newest first. `kind`: one of KINDS; the gate closed, or somebody should look.

    `before`: the time and id of an entry; only those before it. Of the two kinds, the newest 2,000 entries are looked at.
    """
    at, decision_id = before or (None, None)
    values = {
        "engine_id": engine_id,
        "limit": limit,
        "before_at": at,
        "before": decision_id,
        "failures": sorted(FAILURES),
    }
    rows = await (await conn.execute(sql.recent(kind).encode(), values)).fetchall()
    return [LoggedChange(at, decision_id, AllowanceChange(*change)) for at, decision_id, *change in rows]


async def forget(conn: Connection, engine_ids: Sequence[int]) -> None:
    """Forget the decisions of these engines."""
    await conn.execute(sql.FORGET, {"engine_ids": list(engine_ids)})


async def prune(conn: Connection, engine_id: int, *, keep_days: float, keep_rows: int) -> int:
    """Delete a bounded number of an engine's oldest entries, if they are too old or too many. Returns how many."""
    limits = {"keep_seconds": keep_days * 86_400, "keep_rows": keep_rows, "at_once": PRUNED_AT_ONCE}
    return (await conn.execute(sql.PRUNE, {"engine_id": engine_id, **limits})).rowcount


class LoggedDecision:
    """The last decision in the log, which may lag, so that what alternates many times a second costs few rows.

    A failure is always logged, as is a new reason with another allowance. A new reason alone waits `REASON_SECONDS`, and so does
    a failure that says something else; STEADY reasons count as one. A new allowance alone waits `SIZE_SECONDS`, and must be
    material. Each row starts with the reason at the end of the row before.
    """

    def __init__(self, decision: Decision) -> None:
        self._last = decision
        self._allowance = decision.allowance  # in the last row
        self._detail: str | None = None
        self._at = -math.inf

    def change(self, now: float, decision: Decision, detail: str | None = None) -> Decision | None:
        """The logged decision that this one replaces; None: nothing is logged now. `detail`: what a failure says."""
        was, age = self._last, now - self._at
        failed = CLOSED_BY_FAILURE & {decision.reason, was.reason}
        if decision.reason is was.reason or {decision.reason, was.reason} <= STEADY:
            self._last = replace(decision, reason=was.reason)
            if failed:
                if detail == self._detail or age < REASON_SECONDS:
                    return None
            elif age < SIZE_SECONDS or not _material(self._allowance, decision.allowance):
                return None
            else:
                was = replace(was, allowance=self._allowance)
        elif decision.allowance == was.allowance and not failed and age < REASON_SECONDS:
            return None
        self._last, self._allowance, self._detail, self._at = decision, decision.allowance, detail, now
        return was


def _material(was: int, allowance: int) -> bool:
    return was != allowance and abs(was - allowance) >= MATERIAL * max(was, allowance)


class DecisionLog:
    """Collects changes and writes them in the background. Set `engine_id` once the engine is known.

    While the database cannot be reached, the last `capacity` changes are kept, and `dropped` counts the others.
    """

    def __init__(
        self, database: Database, engine: str = "", *, keep_days: float, keep_rows: int, capacity: int = CAPACITY
    ) -> None:
        self._engine = engine
        self.engine_id: int | None = None
        self.dropped = 0
        self._database = database
        self._keep_days = keep_days
        self._keep_rows = keep_rows
        self._capacity = capacity
        self._rows: collections.deque[tuple[float, AllowanceChange]] = collections.deque()
        self._added = asyncio.Event()
        self._prune_at = 0.0
        self._unreachable = False

    def add(self, change: AllowanceChange) -> None:
        """Add a change that happens now. Never waits, never raises."""
        self._rows.append((clock.monotonic(), change))
        self._fit()
        self._added.set()

    async def run(self) -> None:
        """Flush at most once a second, until cancelled."""
        while True:
            await self._added.wait()
            await self.flush()
            await asyncio.sleep(FLUSH_SECONDS)

    async def flush(self) -> None:
        """Write the collected changes. If that fails, they are kept for the next time."""
        self._added.clear()
        if self.engine_id is None or not self._rows:
            return
        rows, self._rows = self._rows, collections.deque()
        written = False
        try:
            async with self._database.relaxed() as conn:
                await record(conn, self.engine_id, rows, engine=self._engine)
                written, self._unreachable = True, False
                await self._prune(conn, self.engine_id)
        except (TimeoutError, *TRANSIENT) as error:
            if not self._unreachable:
                log.warning("database.unavailable", verb="journal", error=cause(error))
            self._unreachable = True
        finally:
            if not written:
                self._rows = rows + self._rows
                self._fit()
                self._added.set()

    async def _prune(self, conn: Connection, engine_id: int) -> None:
        now = clock.monotonic()
        if now >= self._prune_at:
            self._prune_at = now + PRUNE_SECONDS
            await prune(conn, engine_id, keep_days=self._keep_days, keep_rows=self._keep_rows)

    def _fit(self) -> None:
        """Drop the oldest rows beyond the capacity."""
        while len(self._rows) > self._capacity:
            self._rows.popleft()
            self.dropped += 1
