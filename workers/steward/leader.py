"""Leader election by a Postgres advisory lock. The lock ends with its connection, so a dead leader is replaced at once.

A leader that hangs does not close its connection. The server closes it after 5 s without a statement. A round that takes longer
does not cost the lead: a task of its own confirms it meanwhile, for a minute at most. A leader whose server does not answer drops
its connection (`app.db.watched_connection`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg

from app import clock
from app.db import direct, schema, session_settings
from app.db.watched_connection import QUIET_SECONDS, WatchedConnection
from app.errors import SchemaMismatch
from app.queue import wakes

_LOCK = "select pg_try_advisory_lock(hashtext('slackwater steward'))"
_IDLE_TIMEOUT = "set idle_session_timeout = '5s'"
_RETRY_SECONDS = 1.0
_KEEP_SECONDS = 1.0
_HANGS_SECONDS = 60.0  # a round that takes longer may never end


class Leadership:
    """The lock. It is held as long as its connection works, on which calls of other processes arrive, too (`app.queue.wakes`)."""

    def __init__(self, conn: psycopg.AsyncConnection) -> None:
        self._conn = conn
        self._called = asyncio.Event()  # also by what arrived with the answer to a statement
        self._turn = asyncio.Lock()
        conn.add_notify_handler(lambda _: self._called.set())

    async def confirm(self) -> None:
        """Raise psycopg.OperationalError if the connection, and with it the lock, is lost; SchemaMismatch if newer code has
        closed the database to this code.
        """
        async with self._turn:
            await schema.require(self._conn)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Confirm again and again while the block runs, unless it hangs. A lead that is lost meanwhile is noticed by the next
        `confirm`.
        """
        over = asyncio.Event()
        task = asyncio.create_task(self._keep(over))
        try:
            yield
        finally:
            over.set()
            await task

    async def _keep(self, over: asyncio.Event) -> None:
        until = clock.monotonic() + _HANGS_SECONDS
        with suppress(psycopg.OperationalError, SchemaMismatch):
            while clock.monotonic() < until:
                with suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), _KEEP_SECONDS)
                    return
                await self.confirm()

    async def ask(self, query: str, parameters: Mapping[str, Any]) -> tuple[Any, ...]:
        """The only row of the answer. Raises psycopg.OperationalError as `confirm` does."""
        async with self._turn:
            row = await (await self._conn.execute(query.encode(), parameters)).fetchone()
        assert row is not None
        return row

    async def called(self, seconds: float, stopping: asyncio.Event) -> bool:
        """Wait for a call, which may have come since the last wait. False: none came for so many seconds, or `stopping` is set.

        It also ends when the connection is lost, as `confirm` will say.
        """
        async with self._turn:
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
