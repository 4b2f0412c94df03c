"""Claims about the control of an engine: one worker at a time, under whichever name."""

import pytest

from app.db.pool import Database
from app.engines import service as engines
from app.queue import service as queue

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


@pytest.mark.parametrize("name", ["one", "two"])
async def test_a_worker_whose_lease_has_lapsed_controls_nothing(database: Database, name: str) -> None:
    assert await take(database, "one", lease_seconds=0) is not None
    assert await take(database, name) is not None
