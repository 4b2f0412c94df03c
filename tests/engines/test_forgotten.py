"""Engines that nobody has heard of for days: they cost a poll nothing, and are forgotten."""

from app.db.pool import Connection, Database
from app.engines import service as engines
from app.queue import items, reads
from app.sealing.keyring import Keyring
from app.settings import Settings
from tests.maintenance.support import work
from tests.queue import support
from workers.maintenance import duties

GONE = 10_000
OLD = """
insert into engine (name, pool_id, url, mode, slots, state, heartbeat_at)
select 'spot-' || g, %(pool)s, 'http://x', 'attached', 256, 'down', now() - make_interval(days => %(days)s)
from generate_series(1, %(count)s) g"""


async def names(conn: Connection) -> list[str]:
    return [row[0] for row in await (await conn.execute("select name from engine order by name")).fetchall()]


async def test_a_poll_and_a_refresh_see_no_engine_that_was_down_for_days(database: Database) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
        await support.make_engine(conn, database, pool)
        await conn.execute(OLD, {"pool": pool, "days": 2, "count": GONE})
        listed = await engines.list_engines(conn)
    batch = await support.submit(database, tenant, pool, 4)
    [snapshot] = await reads.snapshots(database, [(tenant, batch.request_id)])
    assert snapshot is not None
    assert snapshot[1] is not None
    assert [gate.engine for gate in snapshot[1].gates] == [engine.name for engine in listed] == ["e"]


async def test_engines_are_forgotten_after_a_week_with_their_decisions_unless_drained_or_controlled(
    database: Database, settings: Settings
) -> None:
    async with database.durable() as conn:
        pool = await support.make_pool(conn)
        await support.make_engine(conn, database, pool)
        await conn.execute(OLD, {"pool": pool, "days": engines.FORGOTTEN_DAYS + 1, "count": 5})
        await conn.execute("update engine set intake = 'draining' where name = 'spot-1'")
        await conn.execute("update engine set heartbeat_at = now() - interval '1 day' where name = 'spot-2'")
        await conn.execute("update engine set heartbeat_at = now() - interval '99 days' where name = 'e'")
        await conn.execute(
            """insert into decision (engine_id, at, layer, was_allowance, allowance, was_reason, reason, in_flight, credited)
               select engine_id, now(), 'l1', 0, 0, 'open', 'open', 0, 0 from engine"""
        )
    await duties.engines(work(database, settings))
    async with database.durable() as conn:
        assert await names(conn) == ["e", "spot-1", "spot-2"]
        left = await (await conn.execute("select count(*) from decision")).fetchone()
    assert left == (3,)


async def test_a_result_of_a_forgotten_engine_is_shown_without_its_name(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    batch = await support.submit(database, tenant, pool, 1)
    await support.drain(database, pool, await support.make_worker(database, pool))
    async with database.durable() as conn:
        await conn.execute("update item_result set engine_id = 12345")
        [item] = await items.page(conn, Keyring.of(settings), batch.batch_id, 1, limit=9)
    assert item.ok
    assert item.engine is None
