"""Statements on one batch name the tables of its day: what they lock and plan does not grow with the days that are kept."""

from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import sql

from app.db import day_tables
from app.db.day_tables import on_day
from app.db.pool import Database
from app.errors import NotFound
from app.queue import partitions, reads, removal, service, worker_sql
from app.queue.removal import EndedBatch
from app.queue.types import Lease
from testing.waiting import in_time
from tests import timing
from tests.queue import support
from tests.queue.past import Past
from tests.queue.plans import execution, prepare, read

MOST_LOCKS = 32  # of one statement


def test_the_day_of_a_batch_is_in_its_id() -> None:
    text = "select from item_payload p join item_result using (seq), item_payloads"
    batch_id = (366 << day_tables.DAY_BITS) + 12_345
    assert on_day(text, batch_id) == (
        "select from item_payload_20250101 p join item_result_20250101 using (seq), item_payloads"
    )


async def leased(database: Database, items: int = 8) -> Lease:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    await support.submit(database, tenant, pool, items)
    worker = await support.make_worker(database, pool)
    async with database.relaxed() as conn:
        lease = await support.claim(conn, pool, worker)
    assert lease is not None
    return lease


async def test_of_a_dropped_day_nothing_is_known_and_every_lease_is_lost(database: Database) -> None:
    lease = replace(await leased(database), batch_id=(1 << day_tables.DAY_BITS) + 1)
    with pytest.raises(NotFound):
        _ = [page async for page in reads.results(database, lease.batch_id, 1)]
    async with database.durable() as conn:
        with pytest.raises(NotFound):
            await service.load(conn, lease)
        assert not await service.flush(conn, lease, support.answers([_item(0)]))
        assert await service.finish(conn, lease) is None


async def test_deleting_the_items_of_a_batch_waits_for_no_other_day_and_not_for_a_dropped_table(
    database: Database,
) -> None:
    lease = await leased(database)
    async with database.durable() as conn:
        assert await service.flush(conn, lease, support.answers(await service.load(conn, lease)))
    day = on_day("item_payload", lease.batch_id)
    other = on_day("item_payload", lease.batch_id + (1 << day_tables.DAY_BITS))
    batch = EndedBatch(lease.batch_id, 8)
    async with database.transaction() as conn:
        await conn.execute(f"lock table {other} in access exclusive mode".encode())
        async with in_time():
            await removal.remove_items(database, batch)
    async with database.durable() as conn:
        left = await conn.execute("select (select count(*) from item_payload), (select count(*) from item_result)")
        assert await left.fetchone() == (0, 0)
        await conn.execute(f"drop table {day}".encode())
    await removal.remove_items(database, batch)


async def test_a_flush_that_names_another_batch_than_its_chunk_has_stores_nothing(database: Database) -> None:
    lease = await leased(database)
    async with database.durable() as conn:
        assert not await service.flush(
            conn, replace(lease, batch_id=lease.batch_id + 1), support.answers([_item(lease.lo)])
        )
        assert await (await conn.execute("select count(*) from item_result")).fetchone() == (0,)
        assert await service.finish(conn, replace(lease, batch_id=lease.batch_id + 1)) is None
        assert await service.flush(conn, lease, support.answers([_item(lease.lo)]))


def _item(seq: int) -> Any:
    return service.Item(seq, "", "", b"")


@pytest.mark.holds_accounts
async def test_no_statement_of_a_chunk_takes_more_locks_on_forty_days_than_on_ten(database: Database) -> None:
    lease = await leased(database, 32)
    async with database.transaction() as conn:
        await partitions.create(conn, days_ahead=9)
    few = await _locks(database, lease)
    async with database.transaction() as conn:
        await partitions.create(conn, days_ahead=39)
    many = await _locks(database, lease)
    timing.note(f"locks: {few}")
    assert {name for name in few if many[name] > few[name] + 2} == set()  # the catalogue's come and go
    assert max(many.values()) <= MOST_LOCKS


async def _locks(database: Database, lease: Lease) -> dict[str, int]:
    """The locks that each statement of a chunk takes, planned anew. All is rolled back."""
    found = {}
    async with database.durable() as conn:
        for name, statement in {
            "claim": lambda: service.claim(conn, 1, lease.worker_id),
            "load": lambda: service.load(conn, lease),
            "flush": lambda: service.flush(conn, lease, support.answers([_item(lease.lo)])),
            "finish": lambda: service.finish(conn, lease),
        }.items():
            async with conn.transaction(force_rollback=True):
                assert await statement()
                held = await conn.execute("select count(distinct relation) from pg_locks where pid = pg_backend_pid()")
                [(found[name],)] = await held.fetchall()
    return found


def test_plans_made_for_a_day_that_was_vacuumed_while_empty_stay_right_when_it_is_full(database_url: str) -> None:
    """As the roles of a deployment plan: once for all parameters, and with an index wherever there is one."""
    options = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off"
    with psycopg.connect(database_url, autocommit=True, prepare_threshold=None, options=options) as conn:
        conn.execute("insert into tenant (tenant_id, account_id, name) overriding system value values (1, 'a', 'a')")
        row = conn.execute("select next_batch_id()").fetchone()
        assert row is not None
        batch_id = row[0]
        for table in ("item_payload", "item_result"):
            conn.execute(f"vacuum (analyze) {on_day(table, batch_id)}".encode())
        values = {"batch_id": batch_id, "run": 1, "lo": 0, "hi": 63, "seqs": None}
        statement = on_day(worker_sql.LOAD, batch_id)
        conn.execute(prepare(statement, values))
        load = execution(statement, values)
        assert conn.execute(load).fetchall() == []
        conn.execute(
            """insert into item_payload (batch_id, seq, est_tokens, wants_json, body)
               select %s, g, 100, false, '{}' from generate_series(0, 19999) g""",
            (batch_id,),
        )
        conn.execute(
            """insert into batch (batch_id, request_id, tenant_id, model, endpoint, total, deadline)
               values (%s, gen_random_uuid(), 1, 'toy', '/v1', 20000, now())""",
            (batch_id,),
        )
        row = conn.execute(sql.SQL("explain (analyze, buffers, format json) ") + load).fetchone()
        assert row is not None
        full = read(row[0][0]["Plan"])
    timing.note(f"pages of a load, planned on an empty day: {full.pages} for {full.rows} rows")
    assert full.scanned == []
    assert full.pages < 100 + 8 * 64


async def test_a_day_that_is_over_is_frozen_once(past: Past) -> None:
    day = await past.day(1)
    await past.batch(day, final_ago=0)
    assert await partitions.freeze(past.conn) == [f"item_payload_{day:%Y%m%d}", f"item_result_{day:%Y%m%d}"]
    frozen = "select age(relfrozenxid) < 100, reltuples from pg_class where relname = %s"
    assert await (await past.conn.execute(frozen, (f"item_result_{day:%Y%m%d}",))).fetchone() == (True, 5)
    assert await partitions.freeze(past.conn) == []
