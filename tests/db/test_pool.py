"""Connection pools."""

import asyncio

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
