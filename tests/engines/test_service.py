"""Claims about the control of an engine: one worker at a time, under whichever name."""

import pytest

from app.db.pool import Database
from app.engines import service as engines
from app.queue import service as queue
from tests.queue import support

URL = "http://127.0.0.1:8000"


async def take(database: Database, name: str, url: str = URL, *, lease_seconds: float = 60) -> int | None:
    async with database.durable() as conn:
        pool = await engines.ensure_pool(conn, "m")
        worker = await queue.register_worker(conn, pool_id=pool, host="h", pid=1, lease_seconds=lease_seconds)
        return await engines.take_engine(conn, name=name, pool_id=pool, url=url, mode="attached", worker_id=worker)


@pytest.mark.parametrize("name", ["one", "two"])
async def test_an_engine_that_a_live_worker_controls_is_nobody_elses_under_any_name(
    database: Database, name: str
) -> None:
    assert await take(database, "one") is not None
    assert await take(database, name) is None
    assert await take(database, "three", "http://127.0.0.1:8001") is not None


@pytest.mark.parametrize(("name", "url"), [("one", "http://127.0.0.1:8001"), ("two", URL)])
async def test_who_stands_by_neither_waits_for_the_row_of_the_engine_nor_uses_up_an_id(
    database: Database, name: str, url: str
) -> None:
    await take(database, "one")
    async with database.durable() as conn, database.transaction() as other:
        await other.execute("select from engine for update")
        last = "select last_value from engine_engine_id_seq"
        before = await (await conn.execute(last)).fetchone()
        await conn.execute("set lock_timeout = '1s'")
        assert await engines.is_taken(conn, name=name, url=url, worker_id=-1)
        assert not await engines.is_taken(conn, name="three", url="http://127.0.0.1:8002", worker_id=-1)
        assert await (await conn.execute(last)).fetchone() == before


@pytest.mark.parametrize("name", ["one", "two"])
async def test_a_worker_whose_lease_has_lapsed_controls_nothing(database: Database, name: str) -> None:
    assert await take(database, "one", lease_seconds=0) is not None
    assert await take(database, name) is not None


async def test_an_engine_with_an_id_beyond_four_bytes_stores_its_results(database: Database) -> None:
    """As after `slackwater restored`, which lets every sequence jump."""
    async with database.durable() as conn:
        await conn.execute("select setval('engine_engine_id_seq', 1::bigint << 40)")
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
        worker = await support.make_worker(database, pool)
        engine = await engines.take_engine(conn, name="new", pool_id=pool, url=URL, mode="attached", worker_id=worker)
        assert engine == (1 << 40) + 1
        await support.submit(database, tenant, pool, 1)
        lease = await support.claim(conn, pool, worker)
        assert lease is not None
        assert await queue.flush(conn, lease, support.answers(await queue.load(conn, lease)), engine_id=engine)
