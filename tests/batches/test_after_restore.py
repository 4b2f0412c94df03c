"""Claims about a database that was restored to an earlier moment, and about whoever has seen a later state of it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date, timedelta

import pytest

from app.batches import after_restore
from app.batches.after_restore import Tidied
from app.clock import now
from app.db import sequences
from app.db.pool import Connection, Database
from app.errors import Conflict
from app.files import missing_objects as missing_files
from app.queue import ingest, missing_objects, service
from app.settings import Settings
from app.storage import object_names
from app.storage.store import Store
from tests.queue import support

pytestmark = pytest.mark.holds_accounts  # no part is connected


@dataclass
class Restored:
    """A database to which no part is connected."""

    database: Database
    conn: Connection
    tenant: int
    pool: int

    async def tidy(self) -> Tidied:
        async with self.conn.transaction():
            return await after_restore.tidy(self.conn)

    async def one(self, query: str, *values: object) -> object:
        row = await (await self.conn.execute(query.encode(), values)).fetchone()
        return row and row[0]


@pytest.fixture
async def restored(database_url: str) -> AsyncIterator[Restored]:
    async with Database(database_url, size=2, application="a test") as database, database.durable() as conn:
        yield Restored(database, conn, await support.make_tenant(conn), await support.make_pool(conn))


async def test_ids_go_on_beyond_those_that_the_lost_part_of_the_history_has_given(restored: Restored) -> None:
    worker = await support.make_worker(restored.database, restored.pool)
    batch_id = await ingest.next_batch_id(restored.conn)
    await restored.tidy()
    assert await support.make_worker(restored.database, restored.pool) > worker + sequences.STEP
    later = await ingest.next_batch_id(restored.conn)
    assert later % (1 << 36) > batch_id % (1 << 36) + sequences.STEP
    assert later >> 36 == (now().date() - date(2024, 1, 1)).days  # still of its day
    assert await support.make_tenant(restored.conn, "elm") > restored.tenant + sequences.STEP
    assert await support.make_pool(restored.conn, "other") == restored.pool + 1


def test_another_restore_to_the_same_moment_does_not_give_the_ids_of_the_first_one_again() -> None:
    at = now()
    jumps = [sequences.jump(at + timedelta(minutes=minutes)) for minutes in (0, 1, 60, 1440, 40_000)]
    assert len(set(jumps)) == len(jumps)
    assert all(0 < jump < 1 << 36 and jump % sequences.STEP == 0 for jump in jumps)


async def test_a_worker_that_nobody_stopped_can_neither_renew_its_lease_nor_store_a_result(restored: Restored) -> None:
    worker = await support.make_worker(restored.database, restored.pool)
    batch = await support.submit(restored.database, restored.tenant, restored.pool, 4)
    lease = await support.claim(restored.conn, restored.pool, worker)
    assert lease
    items = await service.load(restored.conn, lease)
    assert await service.flush(restored.conn, lease, support.answers(items[:1]))
    tidied = await restored.tidy()
    assert (tidied.workers, tidied.chunks) == (1, 1)
    assert await support.beat(restored.conn, worker, 30) is None
    assert not await service.flush(restored.conn, lease, support.answers(items))
    again = await support.make_worker(restored.database, restored.pool)
    [taken] = await support.drain(restored.database, restored.pool, again)
    assert (taken.chunk_id, taken.attempt) == (lease.chunk_id, lease.attempt)  # nobody is charged with the loss
    assert await restored.one("select count(*) from item_result where batch_id = %s", batch.batch_id) == 4


async def test_webhooks_are_hinted_at_again(restored: Restored) -> None:
    await restored.conn.execute(
        "insert into endpoint (tenant_id, name, url, kinds, secret, state, hinted_at)"
        " values (%s, 'n', 'http://x', '{batch.queued}', '', 'active', now())",
        (restored.tenant,),
    )
    assert (await restored.tidy()).webhooks == 1
    assert await restored.one("select count(*) from endpoint where hinted_at is null") == 1


async def test_while_a_part_is_connected_nothing_changes(restored: Restored, database_url: str) -> None:
    await support.make_worker(restored.database, restored.pool)
    async with Database(database_url, size=1, application="slackwater steward") as part, part.durable() as conn:
        await conn.execute("select 1")
        with pytest.raises(Conflict, match="slackwater steward"):
            await restored.tidy()
    assert await restored.one("select count(*) from worker") == 1
    assert await restored.one("select count(*) from audit") == 0


async def test_objects_that_rows_refer_to_and_the_store_lacks_are_found(restored: Restored, settings: Settings) -> None:
    store = Store.of(settings)
    whole = await support.submit(restored.database, restored.tenant, restored.pool, 2)
    lacking = await support.submit(restored.database, restored.tenant, restored.pool, 3)
    for batch in (whole, lacking):
        for seq in range(batch.total):
            key = object_names.payload(batch.batch_id, seq)
            place = {"key": key.encode(), "batch_id": batch.batch_id, "seq": seq}
            await restored.conn.execute(
                "update item_payload set stored = true, body = %(key)s where batch_id = %(batch_id)s and seq = %(seq)s",
                place,
            )
            if batch is whole or seq == 0:
                await store.put(key, b"{}")
    assert [each async for each in missing_objects.missing(restored.conn, store)] == [(lacking.request_id, 2)]
    file_id = await restored.one(
        "insert into file (file_id, tenant_id, purpose, filename, bytes, lines, state)"
        " values (gen_random_uuid(), %s, 'batch', 'x', 1, 1, 'ready') returning file_id",
        restored.tenant,
    )
    assert len([each async for each in missing_files.missing(restored.conn, store)]) == 1
    await store.put(object_names.upload(restored.tenant, file_id), b"x")  # type: ignore[arg-type]
    assert [each async for each in missing_files.missing(restored.conn, store)] == []
