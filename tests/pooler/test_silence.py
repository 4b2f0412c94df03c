"""Claims about a silent server behind a pooler, which hides which of the server's processes are ours."""

import os
import signal

import psycopg
import pytest

from app.db.pool import Database
from app.settings import Settings
from testing.waiting import in_time

QUIET = 0.2
_PID = "select pg_backend_pid()"


async def test_a_statement_runs_for_as_long_as_it_needs_and_one_that_nobody_runs_ends(
    pooled_settings: Settings,
) -> None:
    async with in_time(), Database(pooled_settings.database_url, size=1, quiet=QUIET) as database:
        async with database.relaxed() as conn:
            await conn.execute(f"select pg_sleep({4 * QUIET})")
            row = await (await conn.execute(_PID)).fetchone()
        assert row
        assert row[0] != conn.info.backend_pid
        os.kill(row[0], signal.SIGSTOP)
        try:
            with pytest.raises(psycopg.OperationalError):
                async with database.relaxed() as conn:
                    await conn.execute(_PID)
        finally:
            os.kill(row[0], signal.SIGCONT)
        async with database.relaxed() as conn:
            await conn.execute(_PID)
