"""Retention drops an old day of batches as a whole:

    rows        batches with their events and deliveries, some at a time; from then on their ids are unknown
    objects     large bodies, including those of failed submits; perhaps only later (`app.storage.late_removal`)
    partitions  detached without blocking other statements, then dropped

While a partition of a day exists, the next run starts with that day again, so a run may be killed between any two steps. A
statement that waits too long for a lock gives up: the run goes on with other days, says which it has left, and the next one
continues.
"""

from dataclasses import dataclass, field
from datetime import date
from itertools import groupby

from psycopg import sql
from psycopg.errors import LockNotAvailable

from app import clock
from app.db import direct
from app.db.pool import Connection
from app.db.watched_connection import WatchedConnection
from app.errors import ServerUnfit
from app.queue import retention_sql as queries
from app.storage import late_removal, object_names
from app.storage.store import Store

_SLICE = 500
_CLOCKS_SECONDS = 3600.0
# A statement that waits for a strong lock blocks all later statements on the table.
_PATIENCE = "set lock_timeout = '2s'"


@dataclass(frozen=True, slots=True)
class Partition:
    """A table with one day's items or results. `pending`: an interrupted detach must be finished."""

    name: str
    parent: str
    attached: bool
    pending: bool
    day: date
    is_old: bool
    low: int
    high: int


@dataclass(slots=True)
class RetentionOutcome:
    """The dropped days, with the number of batches they still had. `left`: what locks of others kept from being dropped, in
    words.
    """

    dropped: dict[date, int] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


async def run(url: str, days: int, store: Store, grace_days: int = 0) -> RetentionOutcome:
    """Drop every day whose batches have all been final for `days` days, or longer if their account has a longer retention. Its
    objects are removed `grace_days` later.

    0 days: nothing is ever dropped. Opens its own connection. Leaves everything while another run is active. Raises
    BehindPooler; ServerUnfit while the database's clock is not to be trusted.
    """
    outcome = RetentionOutcome()
    if not days:
        return outcome
    async with await WatchedConnection.to(url, application_name="slackwater retention") as conn:
        await direct.require(conn)
        await _require_clock(conn)
        await conn.execute(_PATIENCE)
        if not await _is_true(conn, queries.TRY_LOCK):
            outcome.left.append("everything, since another run is active")
            return outcome
        await _drop_days(conn, outcome, days, store, grace_days)
        try:
            await _delete_loose_events(conn, days)
        except LockNotAvailable:
            outcome.left.append("events without a batch")
        await conn.execute(queries.UNLOCK)  # the server may notice the end of the connection only later
    return outcome


async def _drop_days(conn: Connection, outcome: RetentionOutcome, days: int, store: Store, grace_days: int) -> None:
    """Drop the days that are old enough, as far as no lock is in the way."""
    stuck: set[str] = set()
    for day, group in groupby(await _partitions(conn, days), lambda partition: partition.day):
        partitions = list(group)
        try:
            batches = await _empty(conn, partitions[0], days, store, grace_days)
            gone = batches is None or all([await _drop(conn, partition, stuck) for partition in partitions])
        except LockNotAvailable:
            batches, gone = None, False
        if not gone:
            outcome.left.append(str(day))
        elif batches is not None:
            outcome.dropped[day] = batches


async def _require_clock(conn: Connection) -> None:
    """Raise ServerUnfit if the database's clock and ours are far apart. If it were a month ahead, everything would be dropped."""
    row = await (await conn.execute(queries.NOW)).fetchone()
    assert row is not None
    apart = (row[0] - clock.now()).total_seconds()
    if abs(apart) > _CLOCKS_SECONDS:
        problem = f"The database's clock is {apart:.0f} s ahead of this host's, so nothing that is old is dropped"
        raise ServerUnfit(problem, "Correct the clock that is wrong.")


async def _empty(conn: Connection, partition: Partition, days: int, store: Store, grace_days: int) -> int | None:
    """Remove the rows and objects of a day's batches. Returns how many there still were. None: the day must be kept."""
    batches = await _delete_rows(conn, partition, days) if partition.is_old else None
    if batches is not None:
        await late_removal.remove(conn, store, object_names.of_day(partition.day), grace_days)
    return batches


async def _drop(conn: Connection, partition: Partition, stuck: set[str]) -> bool:
    """Drop a partition. False: a lock is in the way.

    `stuck`: the parents of which one partition is half detached. No other can be detached from them, so they are added here.
    """
    if partition.attached and partition.parent in stuck:
        return False
    try:
        if partition.attached:
            stuck.add(partition.parent)
            await _alter(conn, queries.FINALIZE if partition.pending else queries.DETACH, partition)
            stuck.remove(partition.parent)
        await _alter(conn, queries.DROP, partition)
    except LockNotAvailable:
        return False
    return True


async def _delete_rows(conn: Connection, partition: Partition, days: int) -> int | None:
    """Delete the rows of the day's batches. Returns how many. None: one of them must be kept."""
    values = {"low": partition.low, "high": partition.high, "days": days, "limit": _SLICE}
    if await _is_true(conn, queries.IS_HELD, values):
        return None
    batches = 0
    while True:
        async with conn.transaction():
            ids = [row[0] for row in await (await conn.execute(queries.TAKE, values)).fetchall()]
            for statement in queries.FORGET if ids else ():
                await conn.execute(statement, {"ids": ids})
        batches += len(ids)
        if not ids:
            return batches if await _is_true(conn, queries.IS_EMPTY, values) else None


async def _delete_loose_events(conn: Connection, days: int) -> None:
    """Delete old events without a batch, some at a time."""
    while (await conn.execute(queries.FORGET_LOOSE, {"days": days, "limit": _SLICE})).rowcount:
        pass


async def _partitions(conn: Connection, days: int) -> list[Partition]:
    """All daily partitions, oldest first."""
    return [Partition(*row) for row in await (await conn.execute(queries.PARTITIONS, {"days": days})).fetchall()]


async def _alter(conn: Connection, statement: str, partition: Partition) -> None:
    names = {"name": sql.Identifier(partition.name), "parent": sql.Identifier(partition.parent)}
    await conn.execute(sql.SQL(statement).format(**names))


async def _is_true(conn: Connection, query: str, values: dict[str, int] | None = None) -> bool:
    row = await (await conn.execute(query, values)).fetchone()
    return bool(row and row[0])
