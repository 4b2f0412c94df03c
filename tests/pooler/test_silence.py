"""Claims about a silent server behind a pooler, which hides which of the server's processes are ours."""

import asyncio

import psycopg
import pytest

from app.db import watched_connection
from app.db.pool import Connection, Database
from app.settings import Settings
from testing.waiting import eventually, in_time
from tests.freezing import frozen

QUIET = 0.2
_PID = "select pg_backend_pid()"


async def test_a_statement_runs_for_as_long_as_it_needs_and_one_that_nobody_runs_ends(
    pooled_settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, asked = watched_connection._running, list[object]()

    async def counted(url: str) -> object:
        asked.append(await ask(url))
        return asked[-1]

    monkeypatch.setattr(watched_connection, "_running", counted)
    async with in_time(), Database(pooled_settings.database_url, size=1, quiet=QUIET) as pooled:
        async with pooled.relaxed() as conn, database.relaxed() as other:
            async with other.transaction():
                await other.execute("lock table budget")
                waiting = asyncio.create_task(_read(conn))
                await eventually(lambda: len(asked) >= 3)
            await waiting
            row = await (await conn.execute(_PID)).fetchone()
        assert row
        assert row[0] != conn.info.backend_pid
        with frozen(row[0]), pytest.raises(psycopg.OperationalError):
            async with pooled.relaxed() as conn:
                await conn.execute(_PID)
        async with pooled.relaxed() as conn:
            await conn.execute(_PID)


async def _read(conn: Connection) -> None:
    await conn.execute("select count(*) from budget")
