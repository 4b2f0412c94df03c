"""Leadership by a Postgres advisory lock: it ends with its connection, so a dead leader is succeeded at once.

A leader that hangs does not close its connection; the server does, when nothing was heard on it for a while.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg

_LOCK = "select pg_try_advisory_lock(hashtext('slackwater steward'))"
_SILENCE = "set idle_session_timeout = '5s'"
_RETRY_SECONDS = 1.0


class Leadership:
    """Held as long as its connection answers."""

    def __init__(self, conn: psycopg.AsyncConnection) -> None:
        self._conn = conn

    async def confirm(self) -> None:
        """Raises psycopg.OperationalError when the connection, and with it the lock, is gone."""
        await self._conn.execute("select 1")


@asynccontextmanager
async def leadership(url: str, stopping: asyncio.Event) -> AsyncIterator[Leadership | None]:
    """Wait in line until this process leads; None when told to stop before that."""
    conn = await psycopg.AsyncConnection.connect(url, autocommit=True, application_name="slackwater steward lead")
    try:
        await conn.execute(_SILENCE)
        while not stopping.is_set():
            row = await (await conn.execute(_LOCK)).fetchone()
            if row and row[0]:
                yield Leadership(conn)
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _RETRY_SECONDS)
        yield None
    finally:
        await conn.close()
