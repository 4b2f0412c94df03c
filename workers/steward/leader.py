"""Leader election by a Postgres advisory lock. The lock ends with its connection, so a dead leader is replaced at once.

A leader that hangs does not close its connection. The server closes it after 5 s without a statement.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg

from app.db import direct, schema, session_settings

_LOCK = "select pg_try_advisory_lock(hashtext('slackwater steward'))"
_IDLE_TIMEOUT = "set idle_session_timeout = '5s'"
_RETRY_SECONDS = 1.0


class Leadership:
    """The lock. It is held as long as its connection works."""

    def __init__(self, conn: psycopg.AsyncConnection) -> None:
        self._conn = conn

    async def confirm(self) -> None:
        """Raise psycopg.OperationalError if the connection, and with it the lock, is lost; SchemaMismatch if newer code has
        closed the database to this code.
        """
        await schema.require(self._conn)


@asynccontextmanager
async def leadership(url: str, stopping: asyncio.Event) -> AsyncIterator[Leadership | None]:
    """Wait until this process leads. Yields None if `stopping` is set before that.

    Raises psycopg.OperationalError; SchemaMismatch, ServerUnfit if the database is not for this code; BehindPooler if the
    connection could not hold the lock.
    """
    conn = await psycopg.AsyncConnection.connect(url, autocommit=True, application_name="slackwater steward lead")
    try:
        await direct.require(conn)
        await session_settings.require(conn)
        await conn.execute(_IDLE_TIMEOUT)
        while not stopping.is_set():
            await schema.require(conn)
            row = await (await conn.execute(_LOCK)).fetchone()
            if row and row[0]:
                yield Leadership(conn)
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _RETRY_SECONDS)
        yield None
    finally:
        await conn.close()
