"""Connection pools in two durability classes.

`durable` commits wait for the disk: submissions, results, what callers do to batches, events. `relaxed` commits do not
(`synchronous_commit=off`): claim, heartbeat, finish, the steward's care. A lost relaxed commit costs work, never data: a lost
claim is fenced by (chunk, token, worker), a lost finish shows in the next heartbeat's answer, the rest is done again in the
next round.

Statements are planned once per connection, for all parameters: they are few, each has one good plan (tests/queue/test_plans.py
proves it), and planning would cost more than most of them take.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

from psycopg import AsyncConnection, OperationalError, conninfo
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from app import clock
from app.settings import Settings

Connection = AsyncConnection[TupleRow]
Pool = AsyncConnectionPool[Any]

IDLE_SECONDS = 1.0
RECONNECT_SECONDS = 2.0  # between two attempts at most, however long the server is away
CONNECT_SECONDS = 5  # for one attempt, unless the URL says otherwise


class Database:
    """Both pools of one process. Connections are in autocommit; `transaction()` opens an explicit transaction."""

    def __init__(
        self, url: str, *, size: int = 8, application: str = "slackwater", patience_seconds: float = 30
    ) -> None:
        self.url = url
        self._durable = _pool(url, size, application, "on", patience_seconds)
        self._relaxed = _pool(url, size, application, "off", patience_seconds)

    @classmethod
    def of(cls, settings: Settings, application: str, patience_seconds: float = 30) -> Self:
        """The database that the settings name. Who finds no connection free for `patience_seconds` gets PoolTimeout."""
        from app.db.embedded import database_url  # the embedded server is imported only by processes that open a pool

        url, name = database_url(settings), f"slackwater {application}"
        return cls(url, size=settings.database_pool_size, application=name, patience_seconds=patience_seconds)

    async def open(self) -> None:
        """Start filling the pools; does not wait for the server."""
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
        """A connection in autocommit whose commits wait for the disk."""
        async with self._durable.connection() as conn:
            yield conn

    @asynccontextmanager
    async def relaxed(self) -> AsyncIterator[Connection]:
        """A connection in autocommit whose commits may be lost by a server crash (never by a client's)."""
        async with self._relaxed.connection() as conn:
            yield conn

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A durable transaction: committed on leaving the block, rolled back on an exception."""
        async with self._durable.connection() as conn, conn.transaction():
            yield conn


def watching(settings: Settings, application: str) -> Pool:
    """A closed pool of one connection, for who looks on and may take none of those that callers wait for."""
    from app.db.embedded import database_url

    return _pool(database_url(settings), 1, f"slackwater {application}", "off", 1.0)


def _pool(url: str, size: int, application: str, synchronous_commit: str, patience_seconds: float) -> Pool:
    kwargs: dict[str, Any] = {
        "autocommit": True,
        "application_name": application,
        "options": f"-c synchronous_commit={synchronous_commit} -c idle_in_transaction_session_timeout=60s"
        " -c plan_cache_mode=force_generic_plan",
    }

    if "connect_timeout" not in conninfo.conninfo_to_dict(url):
        kwargs["connect_timeout"] = CONNECT_SECONDS

    async def check(conn: AsyncConnection[Any]) -> None:
        """Where one connection is lost all are: one after the other they would be found so, with growing pauses between."""
        try:
            await _check(conn)
        except OperationalError:
            await pool.drain()
            raise

    pool = AsyncConnectionPool(
        url,
        connection_class=_Connection,
        kwargs=kwargs,
        min_size=1,
        max_size=size,
        open=False,
        timeout=patience_seconds,
        reset=_stamp,
        check=check,
        reconnect_timeout=RECONNECT_SECONDS,
        reconnect_failed=_begin_anew,
    )
    return pool


async def _begin_anew(pool: Pool) -> None:
    """The pool's pauses double until it gives up; so it gives up soon, and whoever waits has it begin again."""
    await pool.check()


class _Connection(AsyncConnection[TupleRow]):
    """Knows when it was used last."""

    used_at = 0.0


async def _stamp(conn: AsyncConnection[Any]) -> None:
    if isinstance(conn, _Connection):
        conn.used_at = clock.monotonic()


async def _check(conn: AsyncConnection[Any]) -> None:
    """A connection that worked a moment ago is handed out as it is; asking each time would cost a round trip per verb."""
    if isinstance(conn, _Connection) and clock.monotonic() - conn.used_at > IDLE_SECONDS:
        await AsyncConnectionPool.check_connection(conn)
