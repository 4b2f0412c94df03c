"""Connections to the ring's databases outlive the pools that made them: a new one has to read the catalogue, which takes half of
the processor time of a test.

What a pool of this process closes is kept, without a lock or a setting of its own, and the next pool of that database takes it.
"""

import asyncio
import select
from typing import Any, Self

from psycopg import OperationalError, pq, sql

from app.db import pool
from app.db.pooled_connection import PooledConnection

MOST = 6  # of one database
_SECONDS = 1.0  # for an answer; a test may have frozen the server
_FORGET = (
    b"select pg_advisory_unlock_all(); reset session authorization; reset role; reset all; discard temp; discard plans; "
    b"set application_name = 'kept by tests'"
)
_kept: dict[str, list["Kept"]] = {}  # by the beginning of a URL


class Kept(PooledConnection):
    """What a pool gets instead of a connection that ends when it is closed."""

    _database: str | None = None
    idle_at_end = False  # of its pool

    @classmethod
    async def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:  # type: ignore[override]
        """One that was kept, else a new one."""
        database = next((url for url in _kept if conninfo.startswith(url)), None)
        while database and _kept[database]:
            conn = _kept[database].pop()
            if conn._is_as_new(kwargs["application_name"]):
                return conn  # type: ignore[return-value]
            await PooledConnection.close(conn)
        conn = await super().connect(conninfo, **kwargs)
        conn._database = database
        return conn

    async def close(self) -> None:
        """Keep it if its pool ends, it is in order, and not too many are kept."""
        kept = _kept.get(self._database or "") if self.idle_at_end else None
        if kept is None or self.closed or not self.idle or len(kept) >= MOST or not self._says(_FORGET):
            await super().close()
        else:
            kept.append(self)

    def _is_as_new(self, application: str) -> bool:
        for name in ("terms", "used_at", "patience_seconds", "warning", "watched", "idle_at_end"):
            self.__dict__.pop(name, None)
        self.lock = asyncio.Lock()  # the next loop is another one
        return self._says(sql.SQL("set application_name = {}").format(application).as_bytes(None))

    def _says(self, statement: bytes) -> bool:
        """Whether the server does it."""
        try:
            self.pgconn.send_query(statement)
            while self.pgconn.is_busy() and select.select([self.pgconn.socket], [], [], _SECONDS)[0]:
                self.pgconn.consume_input()
            return not self.pgconn.is_busy() and self._all_done()
        except OperationalError:
            return False

    def _all_done(self) -> bool:
        while (result := self.pgconn.get_result()) is not None:
            if result.status == pq.ExecStatus.FATAL_ERROR:
                return False
        return True


class KeepingPool(pool.Pool):
    """What the product's pools are in tests."""

    async def close(self, timeout: float = 5.0) -> None:
        """As the pool's."""
        for conn in self._pool:
            conn.idle_at_end = True  # type: ignore[attr-defined]
        await super().close(timeout)


def begin(url: str) -> None:
    """From now on those of a database are kept."""
    _kept[url] = []


def renew(url: str) -> None:
    """End those that are kept: settings that the server gets now reach them some time later, but new ones at once."""
    end(url)
    begin(url)


def end(url: str) -> None:
    """They are no longer kept. The database is about to be dropped, with all connections to it."""
    for conn in _kept.pop(url):
        conn.pgconn.finish()


def pids(url: str) -> list[int]:
    """The server's processes of those that no pool has."""
    return [conn.pgconn.backend_pid for conn in _kept[url]]


pool.PooledConnection = Kept  # type: ignore[misc]
pool.Pool = KeepingPool  # type: ignore[misc]
