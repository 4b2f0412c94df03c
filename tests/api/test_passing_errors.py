"""Claims about errors of the database that pass: callers are told to try again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import psycopg
import pytest
from psycopg import errors

from app.db.pool import Connection, Database
from tests.api.support import SUBMIT


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (psycopg.OperationalError("the connection is lost"), "cannot be reached right now"),
        (errors.ReadOnlySqlTransaction(), "cannot be reached right now"),
        (errors.DeadlockDetected(), "could not do this right now"),
        (errors.ForeignKeyViolation(), "could not do this right now"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
async def test_what_passes_by_itself_is_a_503_that_says_so(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, error: psycopg.Error, what: str
) -> None:
    @asynccontextmanager
    async def refused(_: Database) -> AsyncIterator[Connection]:
        raise error
        yield

    monkeypatch.setattr(Database, "transaction", refused)
    answer = await client.post(SUBMIT, json={"requests": [{"prompt": "hello"}]})
    assert (answer.status_code, answer.headers["x-should-retry"], answer.headers["retry-after"]) == (503, "true", "2")
    assert what in answer.json()["errors"][0]["message"]
