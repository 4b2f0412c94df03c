"""Retention: a day of batches whose time is over is dropped as a whole, rows first, then its partitions.

    rows        batches with their events and deliveries, some at a time; from here on its ids are unknown
    objects     large bodies, those of submits that failed included
    partitions  detached without blocking anyone, then dropped

The day's last partition goes at the very end, and as long as one exists the next run begins anew with that day. So it may
be killed between any two steps. What waits too long for others gives up, and is finished by the next run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import groupby

import psycopg
from psycopg import sql

from app.db.pool import Connection
from app.queue import retention_sql as queries
from app.storage import object_names
from app.storage.store import Store

_SLICE = 500
# Statements that wait for a lock block all others that come after them.
_OPTIONS = "-c lock_timeout=2s -c idle_in_transaction_session_timeout=60s"


@dataclass(frozen=True, slots=True)
class Partition:
    """A table of one day's items or results. `pending`: half detached."""

    name: str
    parent: str
    attached: bool
    pending: bool
    day: date
    is_old: bool
    low: int
    high: int


@dataclass(slots=True)
class Outcome:
    """Days that were dropped, with how many batches they still had; and the day at which the run met somebody and left off."""

    dropped: dict[date, int] = field(default_factory=dict)
    busy: date | None = None


async def run(url: str, days: int, store: Store) -> Outcome:
    """Drop every day whose batches are all final and were so for `days` days, or longer where their tenant wants it.

    0 days: nothing is ever dropped. Works on a connection of its own; does nothing while another run is at it.
    """
    outcome = Outcome()
    if not days:
        return outcome
    async with await psycopg.AsyncConnection.connect(
        url, autocommit=True, application_name="slackwater retention", options=_OPTIONS
    ) as conn:
        if await _truth(conn, queries.TRY_LOCK):
            await _forget_loose(conn, days)
            for day, partitions in groupby(await _partitions(conn, days), lambda partition: partition.day):
                try:
                    batches = await _retire(conn, list(partitions), days, store)
                except psycopg.errors.LockNotAvailable:  # a day left half detached would be in the way of the next ones
                    outcome.busy = day
                    break
                if batches is not None:
                    outcome.dropped[day] = batches
    return outcome


async def _retire(conn: Connection, partitions: Sequence[Partition], days: int, store: Store) -> int | None:
    """Drop one day if it may go. Returns how many batches it still had. What was left half detached is detached anyway."""
    for partition in partitions:
        if partition.pending:
            await _alter(conn, queries.FINALIZE, partition)
    batches = await _forget(conn, partitions[0], days) if partitions[0].is_old else None
    if batches is not None:
        for prefix in object_names.of_day(partitions[0].day):
            await store.delete_prefix(prefix)
        for partition in partitions:
            if partition.attached and not partition.pending:
                await _alter(conn, queries.DETACH, partition)
            await _alter(conn, queries.DROP, partition)
    return batches


async def _forget(conn: Connection, partition: Partition, days: int) -> int | None:
    """Delete the rows of the day's batches. Returns how many; None, if one of them has to stay."""
    values = {"low": partition.low, "high": partition.high, "days": days, "limit": _SLICE}
    if await _truth(conn, queries.IS_HELD, values):
        return None
    batches = 0
    while True:
        async with conn.transaction():
            ids = [row[0] for row in await (await conn.execute(queries.TAKE, values)).fetchall()]
            for statement in queries.FORGET if ids else ():
                await conn.execute(statement, {"ids": ids})
        batches += len(ids)
        if not ids:
            return batches if await _truth(conn, queries.IS_EMPTY, values) else None


async def _forget_loose(conn: Connection, days: int) -> None:
    """Delete old events that belong to no batch, some at a time."""
    while (await conn.execute(queries.FORGET_LOOSE, {"days": days, "limit": _SLICE})).rowcount:
        pass


async def _partitions(conn: Connection, days: int) -> list[Partition]:
    """All of them, oldest first."""
    return [Partition(*row) for row in await (await conn.execute(queries.PARTITIONS, {"days": days})).fetchall()]


async def _alter(conn: Connection, statement: str, partition: Partition) -> None:
    names = {"name": sql.Identifier(partition.name), "parent": sql.Identifier(partition.parent)}
    await conn.execute(sql.SQL(statement).format(**names))


async def _truth(conn: Connection, query: str, values: dict[str, int] | None = None) -> bool:
    row = await (await conn.execute(query, values)).fetchone()
    return bool(row and row[0])
