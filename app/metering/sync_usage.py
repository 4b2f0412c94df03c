"""What the synchronous requests of this process used: added up in memory, and booked once a second.

A group of sums has a number, which is stored in the transaction that books it. So a group whose commit had an unknown outcome is
not booked twice. A process that is killed loses what it had not booked: at most BOOK_SECONDS, or the time the database was away.
"""

import uuid
from collections import defaultdict
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime

import structlog
from psycopg.errors import ForeignKeyViolation

from app import clock
from app.db.pool import Connection, Database
from app.db.repeated import repeated
from app.metering import ledger, sessions, sketch, sql
from app.metering.ledger import Booking
from app.metering.lines import LineParts, Lines, without_labels
from app.metering.sessions import Turns
from app.usage_counts import UsageCounts

BOOK_SECONDS = 1.0
_MOST_SUMS = 10_000  # beyond it, new labels are not told apart

_log = structlog.get_logger("ledger")
_MOST_SESSIONS = 10_000  # in a second; further ones are not recorded


@dataclass(slots=True)
class _Sum:
    """What requests of one line used in one hour. The times are bytes as in `Booking`."""

    counts: UsageCounts = field(default_factory=UsageCounts)
    first_tokens: bytearray = field(default_factory=bytearray)
    durations: bytearray = field(default_factory=bytearray)

    def __iadd__(self, other: "_Sum") -> "_Sum":
        self.counts += other.counts
        self.first_tokens += other.first_tokens
        self.durations += other.durations
        return self


@dataclass(slots=True)
class _Group:
    """What is booked in one transaction. Sessions by account and hash."""

    sums: defaultdict[tuple[datetime, LineParts], _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    sessions: dict[tuple[int, bytes], Turns] = field(default_factory=dict)


class SyncUsage:
    """The usage of one process. Run `keeping` around its life."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lines = Lines()
        self._next = _Group()
        self._writer = uuid.uuid4().hex
        self._number = 1  # of the next group
        self._group = _Group()  # is being booked

    def add(
        self,
        line: LineParts,
        counts: UsageCounts,
        *,
        first_token_ms: float | None = None,
        duration_ms: float | None = None,
    ) -> None:
        """Count requests. The times are those of one answer; None: not known."""
        hour = clock.now().replace(minute=0, second=0, microsecond=0)
        if len(self._next.sums) >= _MOST_SUMS:
            line = without_labels(line)
        found = self._next.sums[hour, line]
        found.counts += counts
        if first_token_ms is not None:
            found.first_tokens.append(sketch.bucket(first_token_ms))
        if duration_ms is not None:
            found.durations.append(sketch.bucket(duration_ms))

    def add_turn(self, line: LineParts, session: bytes, prompt: int, fresh: int) -> None:
        """Note the prompt of one more request of a session, in tokens. `fresh`: those that were not cached."""
        known = self._next.sessions
        key = line.tenant_id, session
        if key in known or len(known) < _MOST_SESSIONS:
            known.setdefault(key, Turns()).add(line, prompt, fresh)

    def keeping(self) -> AbstractAsyncContextManager[None]:
        """Book once a second, and once more at the end."""
        return repeated(self.book, BOOK_SECONDS, _log, "usage.not_booked")

    async def book(self) -> None:
        """Book what was added. Raises database errors; then it is booked by the next call."""
        if not self._group.sums:
            self._group, self._next = self._next, _Group()
        if not self._group.sums:
            return
        try:
            bookings = await self._bookings()
            async with self._database.transaction() as conn:
                if await self._is_next(conn):
                    await ledger.book(conn, bookings)
                    await sessions.note(conn, self._group.sessions)
        except ForeignKeyViolation:
            await self._drop_deleted_accounts()
            raise
        self._group = _Group()
        self._number += 1

    async def _drop_deleted_accounts(self) -> None:
        """An account that was deleted has no lines any more; its usage goes with it."""
        self._lines = Lines()
        async with self._database.relaxed() as conn:
            left = await ledger.existing(conn, {line.tenant_id for _, line in self._group.sums})
        sums = {key: found for key, found in self._group.sums.items() if key[1].tenant_id in left}
        turns = {key: found for key, found in self._group.sessions.items() if key[0] in left}
        self._group = _Group(defaultdict(_Sum, sums), turns)

    async def _bookings(self) -> list[Booking]:
        """The group by hour and line; several labels may have one line (`other`)."""
        found: defaultdict[tuple[datetime, int], _Sum] = defaultdict(_Sum)
        group = self._group.sums
        for tenant_id in {line.tenant_id for _, line in group}:  # lines are added one account at a time
            keys = [key for key in group if key[1].tenant_id == tenant_id]
            line_ids = await self._lines.ids(self._database, [line for _, line in keys])
            for (hour, line), line_id in zip(keys, line_ids, strict=True):
                found[hour, line_id] += group[hour, line]
        return [
            Booking(hour, line_id, each.counts, bytes(each.first_tokens), bytes(each.durations))
            for (hour, line_id), each in found.items()
        ]

    async def _is_next(self, conn: Connection) -> bool:
        """Store the group's number. False: a commit that seemed to fail has stored it."""
        values = {"writer": self._writer, "number": self._number}
        return await (await conn.execute(sql.NEXT_GROUP, values)).fetchone() is not None
