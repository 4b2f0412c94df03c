"""Leader election by a Postgres advisory lock. The lock ends with its connection, so a dead leader is replaced at once.

A leader that hangs does not close its connection. The server closes it after 5 s without a statement. A leader whose server
does not answer drops it (`app.db.watched_connection`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg

from app.db import direct, schema, session_settings
from app.db.watched_connection import QUIET_SECONDS, WatchedConnection
from app.queue import wakes

_LOCK = "select pg_try_advisory_lock(hashtext('slackwater steward'))"
_IDLE_TIMEOUT = "set idle_session_timeout = '5s'"
_RETRY_SECONDS = 1.0


class Leadership:
    """The lock. It is held as long as its connection works, on which calls of other processes arrive, too (`app.queue.wakes`)."""

    def __init__(self, conn: psycopg.AsyncConnection) -> None:
        self._conn = conn
        self._called = asyncio.Event()  # also by what arrived with the answer to a statement
        conn.add_notify_handler(lambda _: self._called.set())

    async def confirm(self) -> None:
        """Raise psycopg.OperationalError if the connection, and with it the lock, is lost; SchemaMismatch if newer code has
        closed the database to this code.
        """
        await schema.require(self._conn)

    async def ask(self, query: str, parameters: Mapping[str, Any]) -> tuple[Any, ...]:
        """The only row of the answer. Raises psycopg.OperationalError as `confirm` does."""
        row = await (await self._conn.execute(query.encode(), parameters)).fetchone()
        assert row is not None
        return row

    async def called(self, seconds: float, stopping: asyncio.Event) -> bool:
        """Wait for a call, which may have come since the last wait. False: none came for so many seconds, or `stopping` is set.

        It also ends when the connection is lost, as `confirm` will say.
        """
        called = self._called.is_set() or await direct.heard(self._conn, stopping, seconds)
        self._called.clear()
        return called


@asynccontextmanager
async def leadership(
    url: str, stopping: asyncio.Event, quiet: float = QUIET_SECONDS, turn: Callable[[], None] = lambda: None
) -> AsyncIterator[Leadership | None]:
    """Wait until this process leads. Yields None if `stopping` is set before that. `quiet`: see `watched_connection`. `turn` is
    called at each look.

    Raises psycopg.OperationalError; SchemaMismatch, ServerUnfit if the database is not for this code; BehindPooler if the
    connection could not hold the lock.
    """
    conn = await WatchedConnection.to(url, quiet, application_name="slackwater steward lead")
    try:
        await direct.require(conn)
        await session_settings.require(conn)
        await conn.execute(_IDLE_TIMEOUT)
        while not stopping.is_set():
            turn()
            await schema.require(conn)
            row = await (await conn.execute(_LOCK)).fetchone()
            if row and row[0]:
                await conn.execute(f"listen {wakes.CHANNEL}")
                yield Leadership(conn)
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _RETRY_SECONDS)
        yield None
    finally:
        await conn.close()
