"""Connection pools in two durability classes.

`durable` commits wait for the disk: submits, results, changes by callers, events. `relaxed` commits do not
(`synchronous_commit=off`): claim, heartbeat, finish, the steward's work. A lost relaxed commit costs work, never data: the fence
rejects the worker of a lost claim, the next heartbeat's answer shows a lost finish, and the steward repeats the rest in its next
round.

Statements are planned once per connection, for all parameters. They are few, each has one good plan (tested in
tests/queue/test_plans.py), and planning would take longer than most of them run.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

from psycopg import AsyncConnection, OperationalError, conninfo
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from app import clock
from app.settings import Settings

Connection = AsyncConnection[TupleRow]

IDLE_SECONDS = 1.0  # a connection unused for longer is checked before use
RECONNECT_SECONDS = 2.0  # the longest pause between two attempts, however long the server does not answer
_ONLY_READS = " -c default_transaction_read_only=on -c statement_timeout=500ms -c lock_timeout=50ms"
CONNECT_SECONDS = 5  # the timeout of one attempt, unless the URL has its own


class Pool(AsyncConnectionPool[Any]):
    """A pool whose waiting clients can be cancelled at any moment.

    In Python 3.11 `asyncio.wait_for`, by which a client waits for a connection, loses a cancellation that comes together with
    the result (https://github.com/python/cpython/issues/86296). A loop in such a task would go on for ever.
    """

    async def getconn(self, timeout: float | None = None) -> AsyncConnection[Any]:  # noqa: ASYNC109
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        conn: AsyncConnection[Any] = await super().getconn(timeout)
        if task is not None and task.cancelling() > before:
            await self.putconn(conn)
            raise asyncio.CancelledError
        return conn


class Database:
    """Both pools of one process. Connections are in autocommit mode; `transaction()` opens an explicit transaction."""

    def __init__(
        self, url: str, *, size: int = 8, application: str = "slackwater", patience_seconds: float = 30
    ) -> None:
        self.url = url
        self._durable = _pool(url, size, application, "on", patience_seconds)
        self._relaxed = _pool(url, size, application, "off", patience_seconds)

    @classmethod
    def of(cls, settings: Settings, application: str, patience_seconds: float = 30) -> Self:
        """The database that the settings name. Waiting longer than `patience_seconds` for a connection raises PoolTimeout."""
        from app.db.embedded import database_url  # the embedded server is imported only by processes that open a pool

        url, name = database_url(settings), f"slackwater {application}"
        return cls(url, size=settings.database_pool_size, application=name, patience_seconds=patience_seconds)

    @classmethod
    def reading(cls, settings: Settings, application: str, *, size: int, patience_seconds: float) -> Self:
        """The database for a process that only looks: one pool, in which nothing can be written and no statement runs for long,
        so that it never holds up the queue.
        """
        from app.db.embedded import database_url

        url, name = database_url(settings), f"slackwater {application}"
        database = cls(url, size=size, application=name, patience_seconds=patience_seconds)
        database._durable = database._relaxed = _pool(url, size, name, "off", patience_seconds, _ONLY_READS)
        return database

    async def open(self) -> None:
        """Start to fill the pools, without waiting for the server."""
        await self._durable.open()
        await self._relaxed.open()

    async def close(self) -> None:
        """Close every connection."""
        await self._durable.close()
        await self._relaxed.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @asynccontextmanager
    async def durable(self) -> AsyncIterator[Connection]:
        """A connection in autocommit mode whose commits wait for the disk."""
        async with self._durable.connection() as conn:
            yield conn

    @asynccontextmanager
    async def relaxed(self) -> AsyncIterator[Connection]:
        """A connection in autocommit mode. A crash of the server, but not of the client, may lose its latest commits."""
        async with self._relaxed.connection() as conn:
            yield conn

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A durable transaction: committed on leaving the block, rolled back on an exception."""
        async with self._durable.connection() as conn, conn.transaction():
            yield conn


def watching(settings: Settings, application: str) -> Pool:
    """A closed pool of one connection, for monitoring, which must not take connections that callers wait for."""
    from app.db.embedded import database_url

    return _pool(database_url(settings), 1, f"slackwater {application}", "off", 1.0)


def _pool(
    url: str, size: int, application: str, synchronous_commit: str, patience_seconds: float, options: str = ""
) -> Pool:
    kwargs: dict[str, Any] = {
        "autocommit": True,
        "application_name": application,
        "options": f"-c synchronous_commit={synchronous_commit} -c idle_in_transaction_session_timeout=60s"
        f" -c plan_cache_mode=force_generic_plan{options}",
    }

    if "connect_timeout" not in conninfo.conninfo_to_dict(url):
        kwargs["connect_timeout"] = CONNECT_SECONDS

    async def check(conn: AsyncConnection[Any]) -> None:
        """If one connection is lost, all are. Draining the pool avoids finding them one by one, with growing pauses."""
        try:
            await _check(conn)
        except OperationalError:
            await pool.drain()
            raise

    pool = Pool(
        url,
        connection_class=_Connection,
        kwargs=kwargs,
        min_size=1,
        max_size=size,
        open=False,
        timeout=patience_seconds,
        reset=_note_use,
        check=check,
        reconnect_timeout=RECONNECT_SECONDS,
        reconnect_failed=_reconnect,
    )
    return pool


async def _reconnect(pool: AsyncConnectionPool[Any]) -> None:
    """Start to reconnect again. The pool doubles its pauses until it gives up, so it is made to give up early."""
    await pool.check()


class _Connection(AsyncConnection[TupleRow]):
    """A connection with the time of its last use."""

    used_at = 0.0


async def _note_use(conn: AsyncConnection[Any]) -> None:
    if isinstance(conn, _Connection):
        conn.used_at = clock.monotonic()


async def _check(conn: AsyncConnection[Any]) -> None:
    """A recently used connection is not checked, because a check costs a round trip per statement."""
    if isinstance(conn, _Connection) and clock.monotonic() - conn.used_at > IDLE_SECONDS:
        await AsyncConnectionPool.check_connection(conn)
