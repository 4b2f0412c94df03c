"""Writes the stream of a background response or a flex call to its log, which its caller may be reading.

Events are grouped, over 50 ms at first and over longer times later, so that an answer of any length has a bounded number of
rows. The answer itself is stored like any other. Events that could not be written are missing only in the followed stream.
"""

import asyncio

import psycopg
import structlog

from app.causes import cause
from app.db.pool import Database
from app.queue import response_log
from app.queue.bodies import BatchSeal
from app.queue.types import Lease

GROUP_SECONDS = 0.05
_ROWS_PER_STEP = 200  # after so many rows the grouping time doubles
_MOST_WAITING = 20_000  # events that are kept while the database does not answer

log = structlog.get_logger()


class StreamLogWriter:
    """The log of one item under one lease."""

    def __init__(self, database: Database, lease: Lease, seal: BatchSeal | None = None) -> None:
        self._database = database
        self._lease = lease
        self._seal = seal
        self._waiting: list[bytes] = []
        self._rows = 0
        self._lost = False
        self._writing: asyncio.Task[None] | None = None
        self._in_order = asyncio.Lock()

    def add(self, event: bytes) -> None:
        """Add the next event, as JSON. It is written soon."""
        if not self._lost and len(self._waiting) < _MOST_WAITING:
            self._waiting.append(event)
            if self._writing is None:
                self._writing = asyncio.create_task(self._write_soon())

    async def close(self) -> None:
        """Write the remaining events."""
        if self._writing is not None:  # it sleeps
            self._writing.cancel()
        await self._write()

    async def _write_soon(self) -> None:
        await asyncio.sleep(GROUP_SECONDS * 2 ** (self._rows // _ROWS_PER_STEP))
        self._writing = None
        await self._write()

    async def _write(self) -> None:
        async with self._in_order:
            events, self._waiting = self._waiting, []
            if not events or self._lost:
                return
            try:
                async with self._database.relaxed() as conn:
                    self._lost = not await response_log.append_events(conn, self._lease, events, self._seal)
                self._rows += 1
            except psycopg.Error as error:
                log.warning("events.not_written", batch=self._lease.batch_id, events=len(events), error=cause(error))
                self._waiting = events + self._waiting
