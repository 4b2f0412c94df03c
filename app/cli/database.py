"""How a command runs one function on the database."""

import asyncio
import getpass
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TypeVar
from uuid import uuid4

from app.audit import actor
from app.audit.actor import Actor
from app.db import embedded
from app.db.pool import Connection
from app.db.pooled_connection import PooledConnection
from app.settings import Settings
from app.user_errors import explained

Answer = TypeVar("Answer")


BY_COMMAND = "command line"


def user() -> str:
    """Who runs the command, as the machine knows them."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        return "unknown"


def on_database(
    settings: Settings, verb: Callable[[Connection], Awaitable[Answer]], reason: str | None = None
) -> Answer:
    """Call `verb` with a new connection in autocommit, and return its result. What it changes is recorded as done by the user
    of the command line. Raises Failure.
    """

    async def call() -> Answer:
        async with await PooledConnection.to(embedded.database_url(settings)) as conn:
            return await verb(conn)

    with explained(), acting(reason):
        return asyncio.run(call())


def acting(reason: str | None = None) -> AbstractContextManager[None]:
    """Within it, the user of the command line acts."""
    return actor.acting(Actor(user(), BY_COMMAND, correlation=uuid4().hex, reason=reason))
