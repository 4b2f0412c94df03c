"""Which errors of the database pass by themselves, so that whoever met one tries again."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import psycopg
from psycopg import errors

T = TypeVar("T")
TRIES = 3

TRANSIENT = (
    psycopg.OperationalError,  # no connection, none free in the pool, a deadlock, a serialization failure, a timeout
    psycopg.IntegrityError,  # somebody removed what a row refers to, or wrote the same row, between our statements
    errors.IdleInTransactionSessionTimeout,
    errors.ReadOnlySqlTransaction,  # the server is no longer, or not yet, the primary
)
_OF_THE_SERVER = ("08", "57P", "25006")  # connection, shutdown and start, standby


def away(error: psycopg.Error) -> bool:
    """Whether nothing else will work either: the server does not answer. False: it refused this one statement."""
    return isinstance(error, TRANSIENT) and (error.sqlstate is None or error.sqlstate.startswith(_OF_THE_SERVER))


async def repeated(transaction: Callable[[], Awaitable[T]]) -> T:
    """What the transaction returns, begun anew if somebody else's got in its way. Raises what it met the last time."""
    for _ in range(TRIES - 1):
        try:
            return await transaction()
        except TRANSIENT as error:
            if away(error):
                raise
    return await transaction()
