"""Connection pools."""

import asyncio

from psycopg.sql import SQL, Identifier

from app.db.pool import Database
from testing.waiting import LIMIT_SECONDS, in_time
from tests.db import commits


async def test_a_cancellation_that_comes_together_with_the_connection_is_not_lost(database: Database) -> None:
    alone = Database(database.url, size=1)
    async with alone:
        for turns in range(30):  # of the event loop, between the connection's return and the cancellation
            async with alone.relaxed():
                waiting = asyncio.create_task(_use(alone))
                for _ in range(10):
                    await asyncio.sleep(0)
            for _ in range(turns):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait({waiting}, timeout=LIMIT_SECONDS)
            assert waiting.cancelled(), turns


async def _use(database: Database) -> None:
    async with database.relaxed():
        pass
    await asyncio.Event().wait()


async def test_a_composed_utility_statement_runs_alone_and_a_composed_change_on_the_terms_of_its_borrower(
    database: Database,
) -> None:
    name = Identifier("composed")
    async with database.durable() as conn:
        await conn.execute("create table composed (n int)")
        await commits.watch(conn, "composed")
    async with database.relaxed() as conn:
        await conn.execute(SQL("vacuum (freeze, analyze) {}").format(name))
        await conn.execute(SQL("insert into {} values (1)").format(name))
        await conn.execute(b"insert into composed values (2)")
    async with database.durable() as conn:
        assert await commits.seen(conn) == {("INSERT composed", "off")}


async def test_a_relaxed_change_with_a_parameter_larger_than_what_a_socket_takes_at_once_ends(
    database: Database,
) -> None:
    async with database.durable() as conn:
        await conn.execute("create table large (body bytea)")
    async with in_time(), database.relaxed() as conn:
        await conn.execute("insert into large values (%(body)s)", {"body": bytes(5 << 20)})
        row = await (await conn.execute("select octet_length(body) from large")).fetchone()
    assert row == (5 << 20,)
