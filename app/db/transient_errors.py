"""The database errors that are worth a retry."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import psycopg
from psycopg import errors

T = TypeVar("T")
TRIES = 3

TRANSIENT = (
    psycopg.OperationalError,  # no connection, none free in the pool, a deadlock, a serialization failure, a timeout
    psycopg.IntegrityError,  # another transaction deleted a referenced row, or inserted the same row, between our statements
    errors.IdleInTransactionSessionTimeout,
    errors.ReadOnlySqlTransaction,  # the server is no longer, or not yet, the primary
)
_OF_THE_SERVER = ("08", "57P", "25006")  # connection, shutdown and start, standby


def away(error: psycopg.Error) -> bool:
    """Whether the server does not answer, so that every statement would fail. False: it rejected this one statement."""
    return isinstance(error, TRANSIENT) and (error.sqlstate is None or error.sqlstate.startswith(_OF_THE_SERVER))


async def with_retries(transaction: Callable[[], Awaitable[T]]) -> T:
    """The transaction's result. It is repeated after a conflict with another one, TRIES times in all. Raises the last error."""
    for _ in range(TRIES - 1):
        try:
            return await transaction()
        except TRANSIENT as error:
            if away(error):
                raise
    return await transaction()
