"""Claims about a server, or a proxy before it, that takes everything and never answers: whoever waits goes on by another
connection, and a statement that takes its time does not end.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from app.db import watched_connection
from app.db.pool import Connection, Database
from app.db.transient_errors import away
from app.db.watched_connection import Inquiry, WatchedConnection
from app.settings import Settings
from testing.waiting import LIMIT_SECONDS, eventually, in_time
from tests.freezing import frozen
from tests.wire import Wire, wired

QUIET = 0.2
ROWS = "select n from generate_series(1, 3) n"

Use = Callable[[Connection, Callable[[], None]], Awaitable[object]]


@pytest.fixture
async def wire(settings: Settings) -> AsyncIterator[tuple[Wire, Database]]:
    """A proxy, and an open pool of one connection that goes through it."""
    async with (
        wired(settings) as (wire, through),
        Database(through.database_url, size=1, patience_seconds=LIMIT_SECONDS, quiet=QUIET) as database,
    ):
        async with database.durable() as conn:
            await conn.execute("create table note (n int)")
        yield wire, database


async def by_statement(conn: Connection, silence: Callable[[], None]) -> None:
    silence()
    await conn.execute("select 1")


async def by_relaxed_change(conn: Connection, silence: Callable[[], None]) -> None:
    silence()
    await conn.execute("insert into note values (1)")


async def in_transaction(conn: Connection, silence: Callable[[], None]) -> None:
    async with conn.transaction():
        await conn.execute("insert into note values (1)")
        silence()
        await conn.execute("select 1")


async def by_commit(conn: Connection, silence: Callable[[], None]) -> None:
    async with conn.transaction():
        await conn.execute("insert into note values (1)")
        silence()


async def by_rollback(conn: Connection, silence: Callable[[], None]) -> None:
    async with conn.transaction():
        silence()
        raise ValueError


async def by_pipeline(conn: Connection, silence: Callable[[], None]) -> None:
    async with conn.pipeline():
        silence()
        await conn.execute("select 1")
        await conn.execute("select 2")


async def by_copy(conn: Connection, silence: Callable[[], None]) -> None:
    async with conn.cursor() as cursor, cursor.copy("copy note from stdin") as copy:
        await copy.write("1\n")
        silence()


async def by_rows(conn: Connection, silence: Callable[[], None]) -> None:
    async with conn.cursor() as cursor:
        silence()
        async for _ in cursor.stream(ROWS):
            pass


USES: list[Use] = [
    by_statement,
    by_relaxed_change,
    in_transaction,
    by_commit,
    by_rollback,
    by_pipeline,
    by_copy,
    by_rows,
]


@pytest.mark.parametrize("use", USES)
async def test_whatever_waits_for_a_silent_connection_fails_and_goes_on_by_another_one(
    wire: tuple[Wire, Database], use: Use
) -> None:
    proxy, database = wire
    async with in_time():
        with pytest.raises((psycopg.OperationalError, ValueError)) as failed:
            async with database.relaxed() as conn:
                await use(conn, proxy.abandon)
        assert isinstance(failed.value, ValueError) or away(failed.value)
        async with database.relaxed() as conn:
            assert await (await conn.execute("select 1")).fetchone() == (1,)


async def test_an_idle_connection_that_fell_silent_is_left_before_it_is_used(
    wire: tuple[Wire, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, database = wire
    monkeypatch.setattr("app.db.pool.IDLE_SECONDS", 0.0)
    proxy.abandon()
    async with in_time(), database.relaxed() as conn:
        assert await (await conn.execute("select 1")).fetchone() == (1,)


async def test_a_proxy_that_serves_nobody_any_more_ends_the_wait_too(
    wire: tuple[Wire, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, database = wire
    monkeypatch.setattr(watched_connection, "ANSWER_SECONDS", QUIET)
    async with in_time():
        with pytest.raises(psycopg.OperationalError):
            async with database.relaxed() as conn:
                await by_statement(conn, proxy.stall)
        proxy.release()

        async def served() -> bool:
            async with database.relaxed() as conn:
                return await (await conn.execute("select 1")).fetchone() == (1,)

        await eventually(served)


async def test_who_is_cancelled_while_it_waits_for_a_silent_server_waits_no_longer(
    wire: tuple[Wire, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, database = wire
    monkeypatch.setattr(watched_connection, "CANCEL_SECONDS", 0.1)
    monkeypatch.setattr(Inquiry, "suspect", lambda *_: None)  # so only the cancellation ends it
    async with in_time(), database.relaxed() as conn:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await by_statement(conn, proxy.stall)
        assert conn.closed
    proxy.release()


async def test_what_is_cancelled_at_a_server_that_answers_leaves_a_connection_that_works(database: Database) -> None:
    async with database.relaxed() as conn:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await conn.execute("select pg_sleep(60)")
        assert await (await conn.execute("select 1")).fetchone() == (1,)


def test_a_connection_that_the_other_side_has_reset_is_cut_without_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        theirs, _ = server.accept()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        with pytest.raises(ConnectionResetError):
            ours.recv(1)
        conn = cast(WatchedConnection, SimpleNamespace(pgconn=SimpleNamespace(socket=ours.fileno())))
        WatchedConnection.cut(conn)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows by one whenever a server was asked what it runs."""
    answers: list[object] = []
    ask = watched_connection._running

    async def counted(url: str) -> object:
        answers.append(await ask(url))
        return answers[-1]

    monkeypatch.setattr(watched_connection, "_running", counted)
    return answers


async def test_a_statement_runs_for_as_long_as_it_needs_through_a_proxy_too(
    wire: tuple[Wire, Database], settings: Settings, asked: list[object]
) -> None:
    _, database = wire
    async with in_time(), database.relaxed() as conn, held(settings.database_url) as release:
        waiting = asyncio.create_task(_lock(conn))
        await eventually(lambda: len(asked) >= 2)
        await release()
        await waiting


async def test_a_whole_pipeline_runs_for_as_long_as_it_needs(database_url: str, asked: list[object]) -> None:
    async with in_time(), Database(database_url, size=1, quiet=QUIET) as database, held(database_url) as release:
        waiting = asyncio.create_task(_pipeline(database))
        await eventually(lambda: len(asked) >= 3)
        await release()
        await waiting


async def _pipeline(database: Database) -> None:
    async with database.relaxed() as conn, conn.pipeline():
        await conn.execute("select 1")
        await _lock(conn)
        await conn.execute("select 2")


@asynccontextmanager
async def held(url: str) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """A lock that `_lock` waits for, until what is yielded is called."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        await conn.execute("select pg_advisory_lock(1)")
        yield lambda: conn.execute("select pg_advisory_unlock(1)")


async def _lock(conn: psycopg.AsyncConnection[Any]) -> None:
    await conn.execute("select pg_advisory_lock(1)")


async def test_a_server_that_answers_but_has_no_connection_left_ends_nothing(
    database_url: str, administer: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, refusals = watched_connection._running, []

    async def refused(url: str) -> object:
        try:
            return await ask(url)
        except psycopg.OperationalError as error:
            refusals.append(str(error))
            raise

    monkeypatch.setattr(watched_connection, "_running", refused)
    administer("create role only_one login connection limit 1")
    try:
        url = database_url.replace("//postgres@", "//only_one@")
        async with in_time(), await WatchedConnection.to(url, QUIET) as conn, held(database_url) as release:
            waiting = asyncio.create_task(_lock(conn))
            await eventually(lambda: refusals)
            await release()
            await waiting
    finally:
        administer("drop role only_one")


async def test_a_process_of_the_server_that_stands_still_is_left(database_url: str) -> None:
    async with in_time(), Database(database_url, size=1, quiet=QUIET) as database:
        async with database.relaxed() as conn:
            pid = conn.info.backend_pid
        with frozen(pid):
            with pytest.raises(psycopg.OperationalError):
                async with database.relaxed() as conn:
                    await conn.execute("select 1")
            async with database.relaxed() as conn:
                assert conn.info.backend_pid != pid


async def test_a_server_that_stands_still_as_a_whole_ends_every_wait(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_connection, "ANSWER_SECONDS", QUIET)
    async with Database(database_url, size=2, quiet=QUIET) as database, in_time(), database.relaxed() as conn:
        pid = conn.info.backend_pid
        row = await (await conn.execute("select pg_read_file('postmaster.pid')")).fetchone()
        assert row
        with frozen(pid, int(row[0].split()[0])), pytest.raises(psycopg.OperationalError):
            await conn.execute("select pg_sleep(0)")
