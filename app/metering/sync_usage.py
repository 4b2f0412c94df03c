"""What the synchronous requests of this process used: added up in memory, and booked once a second.

A group of sums has a number, which is stored in the transaction that books it. So a group whose commit had an unknown outcome is
not booked twice. A process that is killed loses what it had not booked: at most BOOK_SECONDS, or the time the database was away.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import structlog
from psycopg.errors import ForeignKeyViolation

from app import clock
from app.db.pool import Connection, Database
from app.db.transient_errors import TRANSIENT
from app.metering import ledger, sql
from app.metering.ledger import Booking
from app.metering.lines import LineParts, Lines, without_labels

BOOK_SECONDS = 1.0
_MOST_SUMS = 10_000  # beyond it, new labels are not told apart

_log = structlog.get_logger("ledger")
_Sums = dict[tuple[datetime, LineParts], list[int]]


class SyncUsage:
    """The usage of one process. Run `keeping` around its life."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lines = Lines()
        self._sums: _Sums = {}
        self._writer = uuid.uuid4().hex
        self._number = 1  # of the next group
        self._group: _Sums = {}  # is being booked

    def add(self, line: LineParts, *, ok: bool, prompt: int, cached: int, output: int) -> None:
        """Count a request that an engine has answered, in part if not `ok`. Tokens; cached ones are part of the prompt."""
        hour = clock.now().replace(minute=0, second=0, microsecond=0)
        if len(self._sums) >= _MOST_SUMS:
            line = without_labels(line)
        sums = self._sums.setdefault((hour, line), [0, 0, 0, 0, 0])
        for place, value in enumerate((1, int(ok), prompt, cached, output)):
            sums[place] += value

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        """Book once a second, and once more at the end."""
        task = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            await self._attempt()

    async def book(self) -> None:
        """Book what was added. Raises database errors; then it is booked by the next call."""
        if not self._group:
            self._group, self._sums = self._sums, {}
        if not self._group:
            return
        try:
            bookings = await self._bookings()
            async with self._database.transaction() as conn:
                if await self._is_next(conn):
                    await ledger.book(conn, bookings)
        except ForeignKeyViolation:
            await self._drop_deleted_accounts()
            raise
        self._group = {}
        self._number += 1

    async def _drop_deleted_accounts(self) -> None:
        """An account that was deleted has no lines any more; its usage goes with it."""
        self._lines = Lines()
        async with self._database.relaxed() as conn:
            left = await ledger.existing(conn, {line.tenant_id for _, line in self._group})
        self._group = {key: sums for key, sums in self._group.items() if key[1].tenant_id in left}

    async def _bookings(self) -> list[Booking]:
        """The group by hour and line; several labels may have one line (`other`)."""
        found: dict[tuple[datetime, int], list[int]] = {}
        for tenant_id in {line.tenant_id for _, line in self._group}:  # lines are added one account at a time
            keys = [key for key in self._group if key[1].tenant_id == tenant_id]
            line_ids = await self._lines.ids(self._database, [line for _, line in keys])
            for (hour, line), line_id in zip(keys, line_ids, strict=True):
                sums = found.setdefault((hour, line_id), [0, 0, 0, 0, 0])
                sums[:] = map(sum, zip(sums, self._group[hour, line], strict=True))
        return [Booking(hour, line_id, *sums) for (hour, line_id), sums in found.items()]

    async def _is_next(self, conn: Connection) -> bool:
        """Store the group's number. False: a commit that seemed to fail has stored it."""
        values = {"writer": self._writer, "number": self._number}
        return await (await conn.execute(sql.NEXT_GROUP, values)).fetchone() is not None

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(BOOK_SECONDS)
            await self._attempt()

    async def _attempt(self) -> None:
        try:
            await self.book()
        except TRANSIENT as error:
            _log.warning("usage.not_booked", error=str(error).strip())
