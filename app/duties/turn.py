"""One turn at a duty: nobody else has one while it lasts, whoever else got the same message.

The lock belongs to a connection of its own, on which the turn is begun and ended: who has lost it can write nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import psycopg

from app.db import direct
from app.duties import sql, standing
from app.duties.schedule import Duty

KEEP_SECONDS = 10.0  # a third of the time after which the server takes the lock from a worker that is silent
SILENCE_SECONDS = 10.0  # a server that answers nothing for so long is away


class Turn:
    """The turn that this process has."""

    def __init__(self, conn: psycopg.AsyncConnection[Any], duty: Duty) -> None:
        self._conn, self._duty = conn, duty

    async def keep(self) -> NoReturn:
        """Keep the lock until cancelled. Raises psycopg.OperationalError, or TimeoutError, once it is lost."""
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            await _answered(self._conn.execute("select"))

    async def succeed(self, seconds: float) -> None:
        """Note that the duty is done. Raises as `keep`."""
        await _answered(standing.succeed(self._conn, self._duty, seconds))

    async def fail(self, error: str) -> None:
        """Note why it is not. Raises as `keep`."""
        await _answered(standing.fail(self._conn, self._duty, error))

    async def leave(self) -> None:
        """Note that the next worker has to do it. Raises as `keep`."""
        await _answered(standing.stop(self._conn, self._duty.name))


async def _answered(statement: Awaitable[object]) -> None:
    async with asyncio.timeout(SILENCE_SECONDS):
        await statement


@asynccontextmanager
async def turn(url: str, duty: Duty) -> AsyncIterator[Turn | None]:
    """Take a turn. None: somebody else has it, or nobody has asked for the duty since it was last done.

    `url`: of the database itself. Raises psycopg.OperationalError, TimeoutError, BehindPooler.
    """
    async with asyncio.timeout(SILENCE_SECONDS):
        conn = await psycopg.AsyncConnection.connect(url, autocommit=True, application_name="slackwater duty")
    async with conn:
        async with asyncio.timeout(SILENCE_SECONDS):
            await direct.require(conn)
            await conn.execute(sql.IDLE_TIMEOUT)
            row = await (await conn.execute(sql.LOCK, {"name": duty.name})).fetchone()
            has_it = row is not None and row[0] and await standing.begin(conn, duty.name)
        yield Turn(conn, duty) if has_it else None
