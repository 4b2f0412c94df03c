"""Claims about statements that go directly to the server, and through a PgBouncer in transaction mode: both ways the same."""

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from app.db import embedded
from app.db.durability import RELAXED
from app.db.pool import Database
from app.settings import Settings
from tests.db import commits
from tests.queue import support

INSERT = "insert into note (n) values (%(n)s)"


@pytest.fixture(params=["direct", "pooled"])
def either(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """The test's settings, directly and through the pooler."""
    with psycopg.connect(settings.database_url, autocommit=True) as conn:
        conn.execute("create table note (n int)")
    pooled: Settings = request.getfixturevalue("pooled_settings") if request.param == "pooled" else settings
    return pooled


async def test_each_commit_waits_as_its_borrower_has_said_and_the_next_one_as_the_next(either: Settings) -> None:
    async with Database.of(either.model_copy(update={"database_pool_size": 2}), "test") as database:
        async with database.durable() as conn:
            await commits.watch(conn, "note")
        for _ in range(8):  # from the sixth time on a statement is prepared
            await _write(database)
        async with database.durable() as conn:
            assert await commits.seen(conn) == {
                ("INSERT note", "on"),
                ("DELETE note", "on"),
                ("UPDATE note", "off"),
                ("INSERT note", "off"),
            }
            found = await (await conn.execute("select waits, count(*) from seen group by 1 order by 1")).fetchall()
            assert found == [("off", 6 * 8), ("on", 3 * 8)]


async def _write(database: Database) -> None:
    """Three durable changes of a row, and six relaxed ones, by turns."""
    async with database.durable() as conn:
        await conn.execute(INSERT, {"n": 1})
    async with database.relaxed() as conn:
        await conn.execute("update note set n = 2")
        await conn.execute(f"update note set n = 3 where {RELAXED} and n = %(n)s", {"n": 2})
    async with database.transaction() as conn:
        await conn.execute(INSERT, {"n": 4})
    async with database.relaxed() as conn, conn.transaction():
        await conn.execute("update note set n = 5 where n = 3")
        await conn.execute(f"update note set n = 6 where {RELAXED} and n = 5")
        await conn.execute("update note set n = 7 where n = 5")
    async with database.durable() as conn:
        await conn.execute("delete from note where n = 4")
    async with database.relaxed() as conn:
        await conn.execute(INSERT, {"n": 8})
        await conn.execute("update note set n = 9 where n = 8")
        await conn.execute("truncate note")


async def test_nothing_follows_the_end_of_a_transaction_that_would_keep_a_connection_of_the_server(
    either: Settings, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    async with Database.of(either, "test") as database, database.relaxed() as conn:
        with trace.open("w") as sent:
            conn.pgconn.trace(sent.fileno())
            for n in range(8):
                await conn.execute(INSERT, {"n": n})
            conn.pgconn.untrace()
    messages = [line.split("\t")[3] for line in trace.read_text().splitlines() if "\tF\t" in line]
    assert messages.count("Sync") >= 8
    assert messages[-1] == "Sync"
    assert "Flush" not in messages


async def test_claim_and_finish_do_not_wait_for_the_disk_and_a_flush_does(either: Settings) -> None:
    async with Database.of(either, "test") as database:
        async with database.durable() as conn:
            tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
        await support.submit(database, tenant, pool, 4)
        worker = await support.make_worker(database, pool)
        async with database.durable() as conn:
            await commits.watch(conn, "chunk")
            await commits.watch(conn, "item_result")
        await support.drain(database, pool, worker)
        async with database.durable() as conn:
            assert await support.beat(conn, worker, 10) == []
            seen = await commits.seen(conn)
    assert {("UPDATE chunk", "off"), ("DELETE chunk", "off"), ("INSERT item_result", "on")} <= seen
    assert ("DELETE chunk", "on") not in seen


async def test_who_only_reads_cannot_write_and_waits_for_nobody(either: Settings) -> None:
    async with (
        Database.of(either, "test") as database,
        Database.reading(either, "test reads", size=2, patience_seconds=10) as reader,
    ):
        for _ in range(7):
            async with reader.relaxed() as conn:
                assert await (await conn.execute("select count(*) from note")).fetchone() == (0,)
                with pytest.raises(errors.ReadOnlySqlTransaction):
                    await conn.execute(INSERT, {"n": 1})
                with pytest.raises(errors.QueryCanceled):
                    await conn.execute("select pg_sleep(5)")
                with pytest.raises(errors.ReadOnlySqlTransaction):
                    async with conn.transaction():
                        await conn.execute(INSERT, {"n": 1})
            async with database.durable() as conn:
                await conn.execute("delete from note where n = 1")


async def test_prepared_statements_find_their_way_whatever_connection_of_the_server_they_meet(either: Settings) -> None:
    async with Database.of(either, "test") as database:

        async def ask(number: int) -> None:
            for turn in range(20):
                async with database.relaxed() as conn:
                    row = await (
                        await conn.execute("select %(a)s::int + %(b)s::int", {"a": number, "b": turn})
                    ).fetchone()
                    assert row == (number + turn,)
                    await conn.execute(INSERT, {"n": turn})

        await asyncio.gather(*(ask(number) for number in range(12)))
        async with database.durable() as conn:
            assert await (await conn.execute("select count(*) from note")).fetchone() == (12 * 20,)


async def test_an_error_of_a_relaxed_statement_is_the_servers_and_the_connection_goes_on(either: Settings) -> None:
    async with Database.of(either, "test") as database, database.relaxed() as conn:
        for _ in range(7):
            with pytest.raises(errors.DivisionByZero):
                await conn.execute("insert into note (n) select 1 / %(n)s::int", {"n": 0})
            await conn.execute(INSERT, {"n": 1})
        assert await (await conn.execute("select count(*) from note")).fetchone() == (7,)


async def test_a_relaxed_statement_that_is_cancelled_leaves_a_pool_that_works(either: Settings) -> None:
    async with Database.of(either, "test") as database:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1), database.relaxed() as conn:
                    await conn.execute("insert into note (n) select 1 from pg_sleep(20)")
        async with database.relaxed() as conn:
            await conn.execute(INSERT, {"n": 1})
            assert await (await conn.execute("select count(*) from note")).fetchone() == (1,)


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as conn:
        return conn.execute(query.encode()).fetchall()


def test_the_settings_of_the_role_reach_statements_through_the_pooler(pooled_settings: Settings) -> None:
    for url in (pooled_settings.database_url, embedded.direct_url(pooled_settings)):
        assert rows(url, "show plan_cache_mode") == [("force_generic_plan",)]
        assert rows(url, "show synchronous_commit") == [("on",)]
