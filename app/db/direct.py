"""Connections that lead to the server itself, for what belongs to a session: a lock that lasts, its own settings, notifications.

A pooler in transaction mode gives the next statement to another session of the server, without a word: two stewards could hold
the same lock.
"""

import asyncio
from typing import Any

from psycopg import AsyncConnection, Connection

from app.errors import BehindPooler

_PID = "select pg_backend_pid()"


async def require(conn: AsyncConnection[Any]) -> None:
    """Raise BehindPooler unless the connection leads to the server itself."""
    row = await (await conn.execute(_PID)).fetchone()
    if row != (conn.info.backend_pid,):
        raise _behind(conn)


async def heard(conn: AsyncConnection[Any], stopping: asyncio.Event, seconds: float | None = None) -> bool:
    """Wait until the server says something, such as a notification, or closes the connection, as the next statement will show.
    False: it said nothing for so many seconds, or `stopping` is set. No statement may run meanwhile.
    """
    loop, said = asyncio.get_running_loop(), asyncio.Event()
    socket = conn.fileno()
    loop.add_reader(socket, said.set)
    waits = [asyncio.create_task(event.wait()) for event in (said, stopping)]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return said.is_set()
    finally:
        loop.remove_reader(socket)
        for wait in waits:
            wait.cancel()


def check(conn: Connection[Any]) -> None:
    """As `require`."""
    if is_pooled(conn):
        raise _behind(conn)


def is_pooled(conn: Connection[Any]) -> bool:
    """Whether the server's process is another one than was announced when the connection was made."""
    return conn.execute(_PID).fetchone() != (conn.info.backend_pid,)


def _behind(conn: AsyncConnection[Any] | Connection[Any]) -> BehindPooler:
    return BehindPooler(f"At {conn.info.host}:{conn.info.port} a connection pooler answers, not the database itself")
