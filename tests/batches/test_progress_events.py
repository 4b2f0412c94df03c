"""Claims about events of running batches: each is written once, and only for accounts that subscribe to it."""

from typing import Any

import orjson
import pytest

from app.batches.progress_events import ProgressEvents
from app.db.pool import Database
from app.events import EventKind
from app.queue import service as queue
from app.queue.types import Lease
from app.settings import Settings
from app.webhooks import emitter
from tests.queue import support
from tests.webhooks.support import subscribe

URL = "http://127.0.0.1:9/hook"


class Scene:
    """A batch of six items in three chunks, and an endpoint that gets its events."""

    def __init__(self, database: Database, tenant: int, pool: int, worker: int) -> None:
        self.database, self.tenant, self.pool, self.worker = database, tenant, pool, worker

    async def claim(self) -> Lease:
        async with self.database.relaxed() as conn:
            lease = await support.claim(conn, self.pool, self.worker)
        assert lease is not None
        return lease

    async def tell(self, news: ProgressEvents) -> int:
        async with self.database.transaction() as conn:
            return await news.write(conn)

    async def told(self) -> list[tuple[str, Any]]:
        """(kind, counts) of each event, in order."""
        async with self.database.durable() as conn:
            rows = await (await conn.execute("select kind, data from event order by event_id")).fetchall()
        return [(kind, orjson.loads(data)["counts"]) for kind, data in rows]


@pytest.fixture
async def scene(database: Database, settings: Settings) -> Scene:
    async with database.durable() as conn:
        await subscribe(
            conn, settings, URL, kinds=[EventKind.BATCH_STARTED, EventKind.BATCH_PROGRESS, EventKind.BATCH_AT_RISK]
        )
        pool = await support.make_pool(conn)
    await support.submit(database, 1, pool, 6, max_items=2)
    return Scene(database, 1, pool, await support.make_worker(database, pool))


async def test_a_started_event_is_written_once_when_a_chunk_is_leased_also_after_a_change_of_leader(
    scene: Scene,
) -> None:
    news = ProgressEvents(3600)
    assert await scene.tell(news) == 0
    await scene.claim()
    assert [await scene.tell(news) for _ in range(2)] == [1, 0]
    await scene.tell(ProgressEvents(3600))  # of the next leader
    counts = {"total": 6, "succeeded": 0, "failed": 0, "unfinished": 6}
    assert await scene.told() == [(EventKind.BATCH_STARTED, counts)]


async def test_a_progress_event_is_written_after_progress_and_not_too_often(scene: Scene) -> None:
    news, seldom = ProgressEvents(0), ProgressEvents(3600)
    await support.run_chunk(scene.database, await scene.claim())
    await scene.claim()
    for each in (seldom, news, news):
        await scene.tell(each)
    told = await scene.told()
    assert [kind for kind, _ in told] == [EventKind.BATCH_STARTED, EventKind.BATCH_PROGRESS]
    assert told[1][1] == {"total": 6, "succeeded": 2, "failed": 0, "unfinished": 4}


async def test_a_batch_that_will_not_be_done_before_it_expires_is_at_risk(scene: Scene) -> None:
    await scene.claim()
    async with scene.database.durable() as conn:
        await conn.execute("update batch set expires_at = now() + interval '1 hour'")
        await conn.execute("insert into pace values (%s, now(), 100, 10)", [scene.pool])
    news = ProgressEvents(3600)
    assert await scene.tell(news) == 1  # started; at ten tokens a second it will be done in a minute
    async with scene.database.durable() as conn:
        await conn.execute("update batch set expires_at = now() + interval '5 seconds'")
    assert [await scene.tell(news) for _ in range(2)] == [1, 0]
    assert [kind for kind, _ in await scene.told()] == [EventKind.BATCH_STARTED, EventKind.BATCH_AT_RISK]


async def test_without_a_subscription_nothing_is_written(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        pool = await support.make_pool(conn)
    await support.submit(database, 1, pool, 6)
    scene = Scene(database, 1, pool, await support.make_worker(database, pool))
    await scene.claim()
    assert await scene.tell(ProgressEvents(0)) == 0
    assert await scene.told() == []


async def test_events_of_items_are_written_with_their_results_for_those_who_asked(
    database: Database, settings: Settings
) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL, kinds=["item.failed"])
        await subscribe(conn, settings, URL, kinds=["item.succeeded", "item.failed"], model="another")
        assert await emitter.subscribed_to_items(conn, 1)
        pool = await support.make_pool(conn)
    await support.submit(database, 1, pool, 4)
    scene = Scene(database, 1, pool, await support.make_worker(database, pool))
    lease = await scene.claim()
    async with database.transaction() as conn:
        items = await queue.load(conn, lease)
        results = [*support.answers(items[:2]), *support.answers(items[2:], ok=False)]
        assert await queue.flush(conn, lease, results)
        for _ in range(2):
            await emitter.emit_items(conn, batch_id=lease.batch_id, run=lease.run, seqs=[item.seq for item in items])
        rows = await (await conn.execute("select kind, n, data from event order by n")).fetchall()
        deliveries = await (await conn.execute("select count(*) from delivery")).fetchone()
    assert [(kind, n, orjson.loads(data)["reference"]) for kind, n, data in rows] == [
        ("item.failed", 2, "ref-2"),
        ("item.failed", 3, "ref-3"),
    ]
    assert deliveries == (2,)
