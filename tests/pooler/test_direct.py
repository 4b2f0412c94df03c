"""Claims about what belongs to a session of the database: through a pooler it is refused, since it would be somebody else's."""

import asyncio

import psycopg
import pytest

from app.db import direct, embedded, migrate
from app.db.pool import Database
from app.duties.schedule import BY_NAME
from app.duties.turn import turn
from app.errors import BehindPooler
from app.queue import retention
from app.settings import Settings
from app.storage.store import Store
from workers.steward.leader import leadership


async def test_a_pooled_url_is_refused_by_migrate_steward_duties_and_retention_and_a_direct_one_is_not(
    pooled_settings: Settings,
) -> None:
    store = Store.of(pooled_settings)
    url = embedded.database_url(pooled_settings)
    with pytest.raises(BehindPooler, match="connection pooler"):
        await asyncio.to_thread(migrate.upgrade, url)
    with pytest.raises(BehindPooler):
        async with leadership(url, asyncio.Event()):
            pass
    with pytest.raises(BehindPooler):
        async with turn(url, BY_NAME["days"]):
            pass
    with pytest.raises(BehindPooler):
        await retention.run(url, 1, store)
    own = embedded.direct_url(pooled_settings)
    await asyncio.to_thread(migrate.upgrade, own)
    await retention.run(own, 1, store)
    async with leadership(own, asyncio.Event()) as lead:
        assert lead is not None
        await lead.confirm()


async def test_two_clients_of_a_pooler_hold_one_session_lock_which_is_why_it_is_refused(pooled: Database) -> None:
    async with pooled.durable() as first, pooled.durable() as second:
        for conn in (first, second):
            assert await (await conn.execute("select pg_try_advisory_lock(7)")).fetchone() == (True,)


def test_without_a_direct_url_the_usual_one_is_taken(settings: Settings) -> None:
    assert embedded.direct_url(settings) == embedded.database_url(settings)
    with psycopg.connect(embedded.direct_url(settings)) as conn:
        direct.check(conn)
