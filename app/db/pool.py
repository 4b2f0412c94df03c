"""The pool of connections of one process. What a statement's commit waits for is said with the statement (`durability`), so that
the pool also works through a pooler in transaction mode, such as PgBouncer.

Statements are planned once per connection, for all parameters. They are few, each has one good plan (tested in
tests/queue/test_plans.py), and planning would take longer than most of them run. The server's roles are set to do so
(`session_settings`), since a pooler refuses start-up options.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from psycopg import AsyncConnection, OperationalError
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from app import clock
from app.db.durability import DURABLE, READING, UNWAITED, Terms
from app.db.keepalive import LEAST_SECONDS
from app.db.pooled_connection import PooledConnection
from app.db.watched_connection import QUIET_SECONDS, Inquiry, quiet_seconds
from app.settings import Settings

Connection = AsyncConnection[TupleRow]

# Whoever needs the database says once that it is away; the pool would log every connection and attempt.
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)

IDLE_SECONDS = 1.0  # a connection unused for longer is checked before use
SPARE_SECONDS = 20.0  # one connection that nobody needed for so long is closed: each costs the server some 3 MB
RECONNECT_SECONDS = 2.0  # the longest pause between two attempts, however long the server does not answer


class Pool(AsyncConnectionPool[PooledConnection]):
    """A pool whose waiting clients can be cancelled at any moment.

    In Python 3.11 `asyncio.wait_for`, by which a client waits for a connection, loses a cancellation that comes together with
    the result (https://github.com/python/cpython/issues/86296). A loop in such a task would go on for ever.
    """

    async def getconn(self, timeout: float | None = None) -> PooledConnection:  # noqa: ASYNC109
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        conn = await super().getconn(timeout)
        if task is not None and task.cancelling() > before:
            await self.putconn(conn)
            raise asyncio.CancelledError
        return conn

    def failures(self) -> int:
        """How many attempts to connect have failed so far."""
        return self.get_stats().get("connections_errors", 0)


class Database:
    """The pool of one process. Connections are in autocommit mode; `transaction()` opens an explicit transaction.

    A durable commit without an answer for `commit_seconds` raises OperationalError: the server may be cut off from its standbys
    for ever. None: wait as long as it takes. `quiet`: see `watched_connection.quiet_seconds`.
    """

    def __init__(
        self,
        url: str,
        *,
        size: int = 8,
        application: str = "slackwater",
        patience_seconds: float = 30,
        commit_seconds: float | None = None,
        quiet: float = QUIET_SECONDS,
        only_reads: bool = False,
    ) -> None:
        self.url = url
        self._pool = _pool(url, size, application, patience_seconds, commit_seconds, quiet)
        self._durable, self._relaxed = (READING, READING) if only_reads else (DURABLE, UNWAITED)

    @classmethod
    def of(cls, settings: Settings, application: str, patience_seconds: float = 30) -> Self:
        """The database that the settings name. Waiting longer than `patience_seconds` for a connection raises PoolTimeout."""
        from app.db.embedded import database_url  # the embedded server is imported only by processes that open a pool

        return cls(
            database_url(settings),
            size=settings.database_pool_size,
            application=f"slackwater {application}",
            patience_seconds=patience_seconds,
            commit_seconds=max(LEAST_SECONDS, settings.lease_seconds),
            quiet=quiet_seconds(settings.lease_seconds),
        )

    @classmethod
    def reading(cls, settings: Settings, application: str, *, size: int, patience_seconds: float) -> Self:
        """The database for a process that only looks: nothing can be written and no statement runs for long, so that it never
        holds up the queue.
        """
        from app.db.embedded import database_url

        return cls(
            database_url(settings),
            size=size,
            application=f"slackwater {application}",
            patience_seconds=patience_seconds,
            quiet=quiet_seconds(settings.lease_seconds),
            only_reads=True,
        )

    async def open(self) -> None:
        """Start to fill the pool, without waiting for the server."""
        await self._pool.open()

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def failures(self) -> int:
        """How many attempts to connect have failed so far."""
        return self._pool.failures()

    @asynccontextmanager
    async def durable(self) -> AsyncIterator[Connection]:
        """A connection in autocommit mode whose commits wait for the disk."""
        async with self._on(self._durable) as conn:
            yield conn

    @asynccontextmanager
    async def relaxed(self) -> AsyncIterator[Connection]:
        """A connection in autocommit mode. A crash of the server, but not of the client, may lose its latest commits."""
        async with self._on(self._relaxed) as conn:
            yield conn

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A durable transaction: committed on leaving the block, rolled back on an exception."""
        async with self._on(self._durable) as conn, conn.transaction():
            yield conn

    @asynccontextmanager
    async def _on(self, terms: Terms) -> AsyncIterator[Connection]:
        async with self._pool.connection() as conn:
            conn.terms = terms
            try:
                yield conn
            finally:
                conn.used_at = clock.monotonic()


def watching(settings: Settings, application: str) -> Pool:
    """A closed pool of one connection, made when it is first needed, for monitoring, which must not take those of callers."""
    from app.db.embedded import database_url

    quiet = quiet_seconds(settings.lease_seconds)
    return _pool(database_url(settings), 1, f"slackwater {application}", 1.0, None, quiet, least=0)


def _pool(
    url: str,
    size: int,
    application: str,
    patience_seconds: float,
    commit_seconds: float | None,
    quiet: float,
    *,
    least: int = 1,
) -> Pool:
    inquiry = Inquiry(url, quiet)

    async def check(conn: PooledConnection) -> None:
        """If one connection is lost, all are. Draining the pool avoids finding them one by one, with growing pauses."""
        try:
            await _check(conn)
        except OperationalError:
            await pool.drain()
            raise

    async def configure(conn: PooledConnection) -> None:
        conn.patience_seconds, conn.inquiry = commit_seconds, inquiry

    pool = Pool(
        url,
        connection_class=PooledConnection,
        kwargs={"autocommit": True, "application_name": application},
        min_size=least,
        max_size=size,
        open=False,
        timeout=patience_seconds,
        max_idle=SPARE_SECONDS,
        configure=configure,
        check=check,
        reconnect_timeout=RECONNECT_SECONDS,
        reconnect_failed=_reconnect,
    )
    return pool


async def _reconnect(pool: AsyncConnectionPool[PooledConnection]) -> None:
    """Start to reconnect again. The pool doubles its pauses until it gives up, so it is made to give up early."""
    await pool.check()


async def _check(conn: PooledConnection) -> None:
    """A recently used connection is not checked, because a check costs a round trip per statement."""
    if clock.monotonic() - conn.used_at > IDLE_SECONDS:
        await Pool.check_connection(conn)
