"""How a command runs one function on the database."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import psycopg

from app.db import embedded
from app.db.pool import Connection
from app.settings import Settings
from app.user_errors import explained

Answer = TypeVar("Answer")


def on_database(settings: Settings, verb: Callable[[Connection], Awaitable[Answer]]) -> Answer:
    """Call `verb` with a new connection in autocommit, and return its result. Raises Failure."""

    async def call() -> Answer:
        async with await psycopg.AsyncConnection.connect(embedded.database_url(settings), autocommit=True) as conn:
            return await verb(conn)

    with explained():
        return asyncio.run(call())
