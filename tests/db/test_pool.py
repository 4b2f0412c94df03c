"""Connection pools."""

import asyncio

from psycopg.sql import SQL, Identifier

from app.db.durability import UNWAITED
from app.db.pool import Database


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
            await asyncio.wait({waiting}, timeout=5)
            assert waiting.cancelled(), turns


async def _use(database: Database) -> None:
    async with database.relaxed():
        pass
    await asyncio.Event().wait()


def test_only_what_may_change_rows_has_a_statement_ahead_and_no_utility_statement_has() -> None:
    name = Identifier("item_result_20260101")
    for statement in (SQL("vacuum (freeze, analyze) {}").format(name), "vacuum batch", b"create index", SQL("cluster")):
        assert not UNWAITED.precede(statement)
    for statement in (SQL("delete from {}").format(name), "insert into note values (1)", b"update note set n = 1"):
        assert UNWAITED.precede(statement)
