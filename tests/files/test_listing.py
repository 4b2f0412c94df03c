"""Claims about the list of an account's files: its order, its pages, and what a page reads."""

import uuid
from typing import Any

import psycopg
import pytest

from app.db.pool import Connection, Database
from app.errors import PlaceUnknown
from app.files import ids, service, sql
from app.files.service import File
from app.settings import Settings
from app.storage.store import Store
from tests.queue import support
from tests.queue.plans import explain

BATCHES = 20_000
# One in three is final for each of: output only, both files, none that can be read. Many end at the same moment.
FILL = """
with b as (insert into batch (batch_id, request_id, tenant_id, model, endpoint, total, ok, failed, deadline, state, finalized_at)
  select g, gen_random_uuid(), 1, 'toy', '/v1', 4, case when g %% 3 = 0 then 4 else 2 end, case when g %% 3 = 0 then 0 else 2 end,
         now(), 'completed', now() - make_interval(mins => g / 7)
  from generate_series(1, %(batches)s) g returning batch_id, request_id, finalized_at)
insert into file_batch (request_id, tenant_id, batch_id, input_file_id, endpoint, completion_window, output_file_id,
                        error_file_id, output_deleted_at, error_deleted_at, listed_at)
select request_id, 1, batch_id, '', '/v1', '24h', gen_random_uuid(), gen_random_uuid(),
       case when batch_id %% 3 = 1 then now() end, case when batch_id %% 3 = 1 then now() end, finalized_at from b"""
UPLOADS = """
insert into file (file_id, tenant_id, purpose, filename, bytes, state, created_at, lines)
select (lpad(to_hex((extract(epoch from at) * 1000)::int8), 12, '0') || '70008' || substr(md5(g::text), 18))::uuid, 1,
       case when g %% 5 = 0 then 'user_data' else 'batch' end, 'x', 1, 'ready', at, 1
from generate_series(1, %(uploads)s) g
cross join lateral (select date_trunc('minute', now()) - make_interval(mins => g / 3, secs => 20 * (g %% 4)) as at) t"""


async def fill(conn: Connection, batches: int, uploads: int) -> None:
    await support.make_tenant(conn)
    await conn.execute(FILL, {"batches": batches})
    await conn.execute(UPLOADS, {"uploads": uploads})


async def pages(conn: Connection, limit: int, **given: Any) -> list[File]:
    """All files, page by page."""
    found: list[File] = []
    more = True
    while more:
        after = ids.format_id(found[-1].file_id) if found else None
        page, more = await service.listing(conn, 1, after=after, limit=limit, **given)
        assert len(page) == limit or not more
        found += page
    return found


@pytest.mark.parametrize("purpose", [None, "batch", "batch_output"])
@pytest.mark.parametrize("ascending", [False, True])
async def test_pages_of_any_size_give_each_file_once_in_the_order_of_time(
    database: Database, *, ascending: bool, purpose: str | None
) -> None:
    async with database.relaxed() as conn:
        await fill(conn, 60, 30)
        whole, _ = await service.listing(conn, 1, ascending=ascending, purpose=purpose)
        expected = {
            None: 60 + 30,
            "batch": 24,
            "batch_output": 60,
        }  # a third of the batches has two files, a third none
        assert len(whole) == len({file.file_id for file in whole}) == expected[purpose]
        assert whole == sorted(whole, key=lambda file: (file.created_at, file.file_id), reverse=not ascending)
        for file in whole[:: len(whole) // 8]:
            assert await service.get(conn, 1, ids.format_id(file.file_id)) == file
        for limit in (1, 3, 7):
            assert await pages(conn, limit, ascending=ascending, purpose=purpose) == whole
        for unknown in (ids.format_id(uuid.uuid4()), "file-x", whole[0].filename):
            with pytest.raises(PlaceUnknown, match=r"^after: "):
                await service.listing(conn, 1, after=unknown)


async def test_a_batch_is_listed_from_its_end_on_and_what_nobody_can_read_is_not_looked_at(
    database: Database, settings: Settings
) -> None:
    async with database.transaction() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    batch = await support.submit(database, tenant, pool, 1)
    late = await support.submit(database, tenant, pool, 1)
    async with database.relaxed() as conn:
        adopt = {"tenant_id": tenant, "request_ids": [batch.request_id]}
        await conn.execute(sql.ADOPT, adopt)
        assert await service.listing(conn, tenant) == ([], False)
        worker = await support.make_worker(database, pool)
        await support.drain(database, pool, worker)
        await support.settle(database)
        [file], _ = await service.listing(conn, tenant)
        assert file.request_id == batch.request_id
        await conn.execute(sql.ADOPT, adopt | {"request_ids": [late.request_id]})
        await conn.execute("update file_batch set listed_at = null where request_id = %s", [late.request_id])
        await conn.execute("update file_batch set output_deleted_at = now() where request_id = %s", [batch.request_id])
    await service.expire(database, Store.of(settings))
    async with database.relaxed() as conn:
        assert [file.request_id for file in (await service.listing(conn, tenant))[0]] == [late.request_id]
        rows = await (await conn.execute("select listed_at = '-infinity' from file_batch order by batch_id")).fetchall()
    assert rows == [(True,), (False,)]


async def test_a_page_reads_as_little_of_twenty_thousand_batches_as_of_a_few(
    database: Database, database_url: str
) -> None:
    async with database.relaxed() as conn:
        await fill(conn, BATCHES, 1000)
        files = await pages(conn, 5000)
        for table in ("batch", "file_batch", "file"):
            await conn.execute(f"vacuum analyze {table}".encode())
    with psycopg.connect(database_url, autocommit=True) as plain:
        for ascending in (False, True):
            for after in (None, files[len(files) // 2]):
                values = {"tenant_id": 1, "purpose": None, "limit": 21}
                values |= {"after": after and after.file_id, "after_at": after and after.created_at}
                for prepared in (False, True):
                    plan = explain(plain, sql.list_files(ascending), values, prepared=prepared)
                    assert plan.pages < 500, (ascending, after, prepared, plan)
                    assert plan.rows < 200
