"""Claims about durable commits on a server that waits for a standby which never comes, as a primary that was cut off does."""

import asyncio
from collections.abc import AsyncIterator, Callable

import psycopg
import pytest
from structlog.testing import capture_logs

from app.db.keepalive import noticed
from app.db.pool import Database
from app.db.pooled_connection import NotConfirmed
from app.db.transient_errors import away
from testing.waiting import eventually, in_time
from tests import kept_connections

INSERT = "insert into note (n) values (clock_timestamp())"
CUT_OFF = 0.5


@pytest.fixture
async def cut_off(database_url: str, administer: Callable[[str], None]) -> AsyncIterator[None]:
    """The server confirms no commit that waits for a standby."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("create table note (n timestamptz primary key)")
    administer("alter system set synchronous_standby_names = 'nobody'")
    administer("select pg_reload_conf()")
    kept_connections.renew(database_url)
    yield
    await reunite(administer)


async def reunite(administer: Callable[[str], None]) -> None:
    administer("set synchronous_commit = local")
    administer("alter system reset synchronous_standby_names")
    administer("select pg_reload_conf()")
    administer("reset synchronous_commit")


async def hung(database: Database, write: Callable[[Database], object]) -> asyncio.Task[object]:
    """A task whose commit waits for the standby."""
    task = asyncio.create_task(write(database))  # type: ignore[arg-type]
    waiting = "select 1 from pg_stat_activity where wait_event = 'SyncRep' and datname = current_database()"
    async with database.relaxed() as conn:

        async def is_hung() -> bool:
            return await (await conn.execute(waiting)).fetchone() is not None

        await eventually(is_hung, "a commit that waits for the standby")
    return task


async def by_statement(database: Database) -> None:
    async with database.durable() as conn:
        await conn.execute(INSERT)


async def by_transaction(database: Database) -> None:
    async with database.transaction() as conn:
        await conn.execute(INSERT)


@pytest.mark.parametrize("write", [by_statement, by_transaction])
async def test_a_commit_that_the_server_stopped_to_wait_for_has_failed(
    database_url: str, cut_off: None, write: Callable[[Database], object]
) -> None:
    async with Database(database_url) as database:
        task = await hung(database, write)
        async with database.relaxed() as conn:
            await conn.execute("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'")
        with pytest.raises(NotConfirmed) as failed:
            await task
        assert away(failed.value)  # so it is repeated as after a lost connection


@pytest.mark.parametrize("write", [by_statement, by_transaction])
async def test_a_commit_without_an_answer_for_a_lease_is_dropped_and_repeated_while_relaxed_ones_pass(
    database_url: str, cut_off: None, write: Callable[[Database], object], administer: Callable[[str], None]
) -> None:
    async with Database(database_url, size=2, commit_seconds=CUT_OFF) as database:
        for _ in range(3):  # its connections are replaced
            with pytest.raises(psycopg.OperationalError) as failed:
                async with in_time():
                    await write(database)  # type: ignore[misc]
            assert away(failed.value)
            async with database.relaxed() as conn:
                await conn.execute("update note set n = n")
        await reunite(administer)

        async def written() -> bool:
            await write(database)  # type: ignore[misc]
            return True

        await eventually(written)
        async with database.relaxed() as conn:
            assert (await (await conn.execute("select count(*) from note")).fetchone()) >= (1,)


async def test_a_commit_is_only_watched_while_it_is_sent(database_url: str) -> None:
    async with Database(database_url, size=2, commit_seconds=0.05) as database, database.transaction() as conn:
        await conn.execute("select pg_sleep(0.2)")
        await asyncio.sleep(0.2)


async def test_a_server_that_has_become_a_standby_is_left(database_url: str) -> None:
    async with Database(database_url, size=2) as database:
        async with database.durable() as conn:
            await conn.execute("set default_transaction_read_only = on")
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                await conn.execute("create table note (n int)")
            assert conn.closed
        async with database.durable() as conn:
            await conn.execute("create table note (n int)")


async def test_of_several_hosts_the_one_is_found_that_answers_and_accepts_writes(
    database_url: str, tmp_path: object
) -> None:
    url = noticed(database_url.replace("host=", f"host={tmp_path},"), 10)
    assert "target_session_attrs=read-write" in url
    assert "target_session_attrs" not in noticed(database_url, 10)
    async with Database(url, size=2) as database, database.durable() as conn:
        assert await (await conn.execute("select 1")).fetchone() == (1,)


@pytest.mark.parametrize("write", [by_statement, by_transaction])
async def test_who_is_cancelled_while_its_commit_waits_does_not_let_the_server_commit_without_the_standby(
    database_url: str, cut_off: None, write: Callable[[Database], object]
) -> None:
    async with Database(database_url) as database:
        task = await hung(database, write)
        with capture_logs() as logs:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert logs == []  # nobody says that the server does not answer
        await asyncio.sleep(0.2)
        async with database.relaxed() as conn:
            assert await (await conn.execute("select count(*) from note")).fetchone() == (0,)
