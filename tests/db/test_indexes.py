"""Claims about migrations beside work: indexes are built while others write, and whatever is killed can be run again."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError
from structlog.testing import capture_logs

from app.db import embedded, migrate, schema
from app.db.pool import Database
from app.queue import partitions
from app.settings import Settings
from migrations.indexes import Index, build_on
from testing.waiting import wait_for
from tests import next_revision

BEFORE = schema.own_revision()
PROBE = Index("item_result_probe", "item_result", "(batch_id, attempt) WHERE ok = 0")
RESULT = """
insert into {table} (batch_id, seq, run, ok, attempt, prompt_tokens, cached_tokens, completion_tokens, body)
select ((now() at time zone 'utc')::date - date '2024-01-01')::bigint << 36, {seq}, 1, 0, 1, 3, 1, 5, '{{}}'"""
TREE = """
select parent.indisvalid and bool_and(own.indisvalid), count(own) from pg_index parent
left join pg_inherits i on i.inhparent = parent.indexrelid left join pg_index own on own.indexrelid = i.inhrelid
where parent.indexrelid = to_regclass(%s) group by parent.indisvalid"""
ADDED = """
select count(distinct c.relname) from pg_attribute a join pg_class c on c.oid = a.attrelid
where a.attname = 'only_the_next_version' and not c.relispartition and c.relkind in ('r', 'p')"""
UNFINISHED = "select count(*) from pg_index where not indisvalid"
DAYS = "select count(*) from pg_inherits where inhparent = 'item_result'::regclass"
WAITS = (
    "select count(*) from pg_stat_progress_create_index where datname = current_database() and phase like 'waiting%'"
)
WANTS = "select count(*) from pg_locks where not granted and relation = to_regclass('item_result')"
MIGRATOR = """
select pg_terminate_backend(pid) from pg_stat_progress_create_index where datname = current_database()"""


@pytest.fixture(scope="module")
def old(server_settings: Settings) -> Iterator[str]:
    """The name of a database with days and one result, before the next version."""
    admin = embedded.database_url(server_settings)
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute("create database old_results")
        url = admin.replace("/postgres?", "/old_results?")
        migrate.upgrade(url)
        asyncio.run(create_days(url))
        store(url, 0)
        yield "old_results"
        conn.execute("drop database old_results with (force)")


async def create_days(url: str) -> None:
    async with Database(url, size=1) as database, database.transaction() as conn:
        await partitions.create(conn, days_ahead=1)


@pytest.fixture
def old_url(server_settings: Settings, old: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A copy of it, which this process migrates as the next version does."""
    next_revision.become(monkeypatch, tmp_path)
    admin = embedded.database_url(server_settings)
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute(f"create database migrated template {old}".encode())
        conn.execute("alter database migrated set statement_timeout = '30s'")  # whatever waits for ever fails
        yield admin.replace("/postgres?", "/migrated?")
        conn.execute("drop database migrated with (force)")


@pytest.fixture(autouse=True)
def _short_lock_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT", "100ms")


@contextmanager
def writing(url: str, table: str) -> Iterator[psycopg.Connection]:
    """An open transaction that has stored a result."""
    with psycopg.connect(url) as conn:
        conn.execute(RESULT.format(table=table, seq=1).encode())
        yield conn


@contextmanager
def beside(step: Callable[[], None]) -> Iterator[Future[None]]:
    """The step, in a thread of its own."""
    pool = ThreadPoolExecutor(1)
    yield pool.submit(step)
    pool.shutdown(wait=False)


def until(url: str, sql: str, step: Future[None] | None = None) -> None:
    """Wait until the query counts something."""
    with psycopg.connect(url, autocommit=True) as conn:

        def counted() -> bool:
            found = conn.execute(sql.encode()).fetchone() != (0,)
            assert found or step is None or not step.done(), step
            return found

        wait_for(counted, sql)


def build(url: str, index: Index = PROBE) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        build_on(conn, index)


def one(url: str, sql: str, *values: str) -> tuple[object, ...] | None:
    with psycopg.connect(url, autocommit=True) as conn:
        return conn.execute(sql.encode(), values).fetchone()


def is_migrated(url: str) -> bool:
    """Whether everything of the next revision is there."""
    current, newest = migrate.revisions(url)
    return (
        current == newest == next_revision.REVISION
        and one(url, UNFINISHED) == (0,)
        and one(url, TREE, next_revision.INDEX) == (True, 2)
        and one(url, f"select count(*) from ({next_revision.TABLES}) t") == one(url, ADDED)
    )


def today(url: str) -> str:
    """The partition of today, written to directly: that takes no lock on the parent."""
    found = one(url, "select 'item_result_' || to_char(now() at time zone 'utc', 'YYYYMMDD')")
    return str((found or ())[0])


def store(url: str, seq: int) -> None:
    """Store a result. Raises LockNotAvailable if that has to wait for long."""
    with psycopg.connect(url) as conn:
        conn.execute("set lock_timeout = '10s'")
        conn.execute(RESULT.format(table="item_result", seq=seq).encode())


async def test_the_index_of_a_table_by_days_is_valid_with_that_of_each_day_and_a_new_day_has_it(
    database_url: str, database: Database
) -> None:
    build(database_url)
    assert one(database_url, TREE, PROBE.name) == (True, (one(database_url, DAYS) or ())[0])
    async with database.transaction() as conn:
        assert await partitions.create(conn, days_ahead=5)
    assert one(database_url, TREE, PROBE.name) == (True, (one(database_url, DAYS) or ())[0])
    build(database_url)  # again changes nothing
    assert one(database_url, UNFINISHED) == (0,)


def test_while_an_index_is_built_results_are_stored(old_url: str) -> None:
    with (
        writing(old_url, today(old_url)) as writer,
        beside(lambda: build(old_url)) as step,
    ):  # it waits for the writer's end
        until(old_url, WAITS, step)
        store(old_url, 2)
        assert not step.done()
        writer.commit()
        step.result(30)
    assert one(old_url, TREE, PROBE.name) == (True, 2)


def test_a_build_that_was_killed_leaves_nothing_unfinished_when_it_is_run_again(old_url: str) -> None:
    with writing(old_url, today(old_url)), beside(lambda: build(old_url)) as step:
        until(old_url, WAITS, step)
        one(old_url, MIGRATOR)
        with pytest.raises(psycopg.OperationalError):
            step.result(30)
    assert one(old_url, UNFINISHED) == (2,)  # that of the parent, and that of the day
    build(old_url)
    assert one(old_url, UNFINISHED) == (0,)
    assert one(old_url, TREE, PROBE.name) == (True, 2)


def test_a_migration_that_was_killed_while_it_built_an_index_is_finished_by_the_next(old_url: str) -> None:
    with psycopg.connect(old_url, options="-c idle_in_transaction_session_timeout=0") as reader:
        reader.execute("set transaction isolation level repeatable read")
        reader.execute("select")  # a snapshot, for which the build has to wait, and no lock
        with beside(lambda: migrate.upgrade(old_url)) as step:
            until(old_url, WAITS, step)
            one(old_url, MIGRATOR)
            with pytest.raises((psycopg.OperationalError, DBAPIError)):
                step.result(30)
    assert migrate.revisions(old_url) == (BEFORE, next_revision.REVISION)
    migrate.upgrade(old_url)
    assert is_migrated(old_url)


def test_a_migration_that_waits_for_a_lock_lets_results_be_stored_and_goes_on_later(old_url: str) -> None:
    with writing(old_url, "item_result") as writer, beside(lambda: migrate.upgrade(old_url)) as step:
        until(old_url, WANTS, step)
        store(old_url, 2)
        assert not step.done()
        writer.commit()
        step.result(60)
    assert is_migrated(old_url)
    assert one(old_url, "select count(*) from item_result") == (3,)


def test_a_migration_that_gets_no_lock_says_who_has_one_and_keeps_what_it_did(old_url: str) -> None:
    with psycopg.connect(old_url, application_name="the report of the month") as writer:
        writer.execute(RESULT.format(table="item_result", seq=1).encode())
        with pytest.raises(migrate.MigrationBlocked, match=r"the report of the month \(pid \d+, for \d+ s\)"):
            migrate.upgrade(old_url, patience_seconds=0)
    migrate.upgrade(old_url)
    assert is_migrated(old_url)


def test_two_that_migrate_at_once_do_not_wait_for_each_other_for_ever(old_url: str) -> None:
    """An index waits for the end of every statement, the other's wait for its turn included, if that were one."""
    with capture_logs() as logs, beside(lambda: migrate.upgrade(old_url)) as first:
        with beside(lambda: migrate.upgrade(old_url)) as second:
            second.result(60)
        first.result(60)
    assert logs == []  # no deadlock that a repetition has solved
    assert is_migrated(old_url)
