"""Claims about migrations on a database that is in use."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from app.batches import funding
from app.db import embedded, migrate
from app.db.pool import Database
from app.metering.report_sql import CHECK
from app.queue import chunk_sweeps, partitions, reaping
from app.settings import Settings
from tests.metering.world import TOY, World
from tests.queue import support

BEFORE_THE_LEDGER = "0021"

_OF_CHUNKS = """
select (select convalidated from pg_constraint where conname = 'chunk_state'),
       (select count(*) from pg_indexes where indexname in ('chunk_unfunded', 'chunk_funded'))"""

# Three batches of one account, as the release before the ledger left them: the first has a chunk that waits and one whose worker
# was lost after its first result, the second a chunk that ended but is not counted and one that is delayed, the third is final.
_OPEN_WORK = """
insert into tenant (account_id, name) values ('acme', 'acme');
insert into pool (model) values ('toy');
insert into worker (pool_id, host, pid, lease_until) values (1, 'old', 1, now() - interval '1 hour');
create temp table made as select n, next_batch_id() as batch_id from generate_series(1, 3) n;
insert into batch (batch_id, request_id, tenant_id, model, endpoint, total, deadline)
  select batch_id, gen_random_uuid(), 1, 'toy', '/v1/chat/completions', 6, now() + interval '1 day' from made;
insert into item_payload (batch_id, seq, est_tokens, wants_json, body)
  select batch_id, seq, 11, false, '{}' from made, generate_series(0, 5) seq;
insert into item_result (batch_id, seq, run, ok, attempt, prompt_tokens, cached_tokens, completion_tokens, body)
  select batch_id, seq, 1, 1, 1, 3, 1, 5, '{}' from made, generate_series(0, 5) seq
  where n = 3 or (n = 2 and seq < 3) or (n = 1 and seq = 3);
insert into chunk (batch_id, run, tenant_id, pool_id, lo, hi, n, est_tokens, deadline, state, token, worker_id, done, not_before)
  select batch_id, 1, 1, 1, lo, lo + 2, 3, 33, now() + interval '1 day', state, token, worker, done, due from made
  join (values (1, 0, 'ready', 0, null, 0, null), (1, 3, 'leased', 1, 1, 1, null), (2, 3, 'delayed', 0, null, 0, now()))
    x (n, lo, state, token, worker, done, due) using (n);
insert into batch_delta (batch_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens)
  select batch_id, 3, 0, 9, 3, 15 from made where n = 2;
insert into sched (pool_id, tenant_id, ready, inflight_tokens) values (1, 1, 1, 33);
update batch set ok = 6, prompt_tokens = 18, cached_tokens = 6, completion_tokens = 30, state = 'completed', finalized_at = now()
  from made where made.batch_id = batch.batch_id and n = 3"""


@pytest.fixture
def empty_url(server_settings: Settings) -> Iterator[str]:
    """A database without a schema."""
    admin = embedded.database_url(server_settings)
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute("create database upgraded")
        yield admin.replace("/postgres?", "/upgraded?")
        conn.execute("drop database upgraded with (force)")


def test_the_migration_that_locks_the_chunks_for_budgets_does_not_scan_them_meanwhile(empty_url: str) -> None:
    """The constraint is checked and the indexes are built by a later migration, which is a transaction of its own."""
    migrate.upgrade(empty_url, "0026")
    with psycopg.connect(empty_url) as conn:
        assert conn.execute(_OF_CHUNKS).fetchone() == (False, 0)
    migrate.upgrade(empty_url)
    with psycopg.connect(empty_url) as conn:
        assert conn.execute(_OF_CHUNKS).fetchone() == (True, 2)
    assert migrate.drift(empty_url) == []


def test_batches_that_were_open_before_there_was_a_ledger_end_with_exact_usage_and_holds(empty_url: str) -> None:
    asyncio.run(_run_to_the_end(empty_url))


async def _run_to_the_end(url: str) -> None:
    await asyncio.to_thread(migrate.upgrade, url, BEFORE_THE_LEDGER)
    async with Database(url, size=2) as database:
        async with database.transaction() as conn:
            await partitions.create(conn, days_ahead=1)
            await conn.execute(_OPEN_WORK)
        await asyncio.to_thread(migrate.upgrade, url)
        world = World(database)
        world.tenant = world.pool = 1
        world.worker, world.line = await support.make_worker(database, 1), await world.line_of("w")
        await world.budget(max_tokens=60, period="month")
        await world.submit(6)
        spent = await _drained(world)
        [(results,)] = await world.rows("select sum(prompt_tokens + completion_tokens)::int8 from item_result")
        assert results == 4 * 6 * 8  # of four batches, each answer of 8 tokens
        assert await world.rows("select state, count(*)::int, sum(ok)::int from batch group by 1") == [
            ("completed", 4, 24)
        ]
        assert await world.rows(CHECK) == []
        # The ledger has what was counted after the upgrade: all but the batch that was final before.
        assert await world.rows("select sum(prompt + output)::int8 from usage") == [(3 * 6 * 8,)]
        assert spent == 3 * 6 * 8
        labelled = "select sum(prompt + output)::int8 from usage join line using (line_id) where workflow = 'w'"
        assert await world.rows(labelled) == [(6 * 8,)]
        assert ((await world.state()).held, await world.recount()) == (0, [])
        async with database.relaxed() as conn:
            assert await support.caches(conn) == [(0, 0)]


async def _drained(world: World) -> int:
    """Run everything, with a new window whenever money has ended. Returns what was spent in all windows."""
    spent = 0
    async with world.database.relaxed() as conn:
        await reaping.reap(conn)
    for _ in range(30):
        async with world.database.relaxed() as conn:
            await chunk_sweeps.promote(conn)
        await funding.move(world.database, TOY, world.tenant)
        await world.fund()
        await world.drain()
        await world.settle()
        if not await world.states():
            return spent + (await world.state()).spent
        if (await world.states()).keys() == {"unfunded"}:
            spent += (await world.state()).spent
            await world.turn()
    raise AssertionError(await world.states())
