"""Reads with a limit of their time, which tell a database that is away from one that is only slow."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from psycopg_pool import PoolTimeout

from app.db.pool import Connection
from app.db.transient_errors import TRANSIENT, away

T = TypeVar("T")


class Late(Exception):
    """The read ran into its limit, or was refused: what it asks for is not known now."""


class Away(Exception):
    """The session was lost, or none could be made."""


class TimedReads:
    """Reads of at most `seconds` through one pool. `connect`: takes a connection of it. `failures`: how many attempts to connect
    have failed so far.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Connection]],
        failures: Callable[[], int],
        seconds: float,
    ) -> None:
        self._connect = connect
        self._failures = failures
        self._seconds = seconds
        self._failed = 0  # as long as a connection could be taken

    async def read(self, query: Callable[[Connection], Awaitable[T]]) -> T:
        """What the query finds. Raises Late and Away."""
        connected = False
        try:
            async with asyncio.timeout(self._seconds), self._connect() as conn:
                connected, self._failed = True, self._failures()
                return await query(conn)
        except (TimeoutError, PoolTimeout) as error:
            raise Late if connected or self._failures() == self._failed else Away from error
        except TRANSIENT as error:
            raise Away if away(error) else Late from error
