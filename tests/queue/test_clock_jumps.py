"""Claims about a database whose clock jumps: nothing is lost or run again that was stored, and nobody is charged for it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from unittest.mock import AsyncMock

import psycopg
import pytest

from app.db.pool import Database
from app.duties.schedule import BY_NAME
from app.errors import ServerUnfit
from app.queue import heartbeat, reaping, retention
from app.queue.heartbeat import Heartbeat
from app.queue.lost_workers import WorkerWatch
from app.settings import Settings
from app.storage.store import Store
from testing.waiting import in_time
from tests import kept_connections
from tests.gpu.conftest import world  # noqa: F401
from tests.gpu.world import World
from tests.queue import support
from workers.steward import __main__ as steward
from workers.steward import rounds

HOUR, LEASE = 3600.0, 10.0
NOT_CHARGED = (
    "select count(*) filter (where data->>'charged' = 'false'), count(*) from change where kind = 'worker.lost'"
)
# The names of pg_catalog come first unless the path says otherwise. Defaults have found theirs when the tables were made.
SHADOW = """
create schema shadow;
create table shadow.clock as select interval '0' as ahead;
create function shadow.now() returns timestamptz stable language sql as 'select pg_catalog.now() + ahead from shadow.clock';
create function shadow.clock_timestamp() returns timestamptz volatile language sql
  as 'select pg_catalog.clock_timestamp() + ahead from shadow.clock';
set search_path = public, shadow, pg_catalog;
do $$ declare found record; begin
  execute format('alter database %I set search_path = public, shadow, pg_catalog', current_database());
  for found in select adrelid::regclass as name, attname, pg_get_expr(adbin, adrelid) as value
    from pg_attrdef join pg_attribute on (attrelid, attnum) = (adrelid, adnum)
    where pg_get_expr(adbin, adrelid) ~ 'now\\(\\)' loop
    execute format('alter table %s alter column %I set default now()', found.name, found.attname);
  end loop;
end $$"""
Shift = Callable[[float], Awaitable[None]]


@pytest.fixture
async def shift(database_url: str) -> AsyncIterator[Shift]:
    """Moves the database's clock by so many seconds."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as conn:
        await conn.execute(SHADOW.encode())
        kept_connections.renew(database_url)

        async def move(seconds: float) -> None:
            await conn.execute("update shadow.clock set ahead = ahead + make_interval(secs => %s)", [seconds])

        yield move


@asynccontextmanager
async def leading(settings: Settings) -> AsyncIterator[None]:
    """A steward."""
    stopping = asyncio.Event()
    task = asyncio.create_task(steward.run(settings, stopping))
    try:
        yield
    finally:
        stopping.set()
        async with in_time():
            await task


@pytest.mark.parametrize(
    "jumps", [(HOUR,), (-HOUR,), (HOUR, -HOUR, HOUR, 12.0, 12.0)], ids=["ahead", "back", "to and fro"]
)
async def test_items_end_once_whatever_jumps_and_what_was_stored_is_not_run_again(
    shift: Shift,
    world: World,  # noqa: F811
    jumps: tuple[float, ...],
) -> None:
    assert world.steward
    world.steward.cancel()
    world.steward = None
    world.engine.latency = 0.05
    prompts = [f"jump {n}" for n in range(60)]
    batch_id = await world.submit(prompts, chunk=4)
    before: list[tuple[list[str], dict[str, int]]] = []
    async with in_time(), leading(world.settings), world.worker(batch_max_in_flight=2):
        for n, seconds in enumerate(jumps):
            await world.until(f"(select count(*) from item_result where batch_id = {batch_id}) >= {8 * n + 4}")
            stored = [prompts[seq] for (seq,) in await world.fetch("select seq from item_result")]
            before.append((stored, dict(world.engine.count)))
            await shift(seconds)
        await world.finished(batch_id)
    results = await world.results(batch_id)
    assert [ok for _, (ok, _, _) in sorted(results.items())] == [1] * len(prompts)
    for stored, counts in before:
        assert {prompt: world.engine.count[prompt] for prompt in stored} == {
            prompt: counts[prompt] for prompt in stored
        }
    [(uncharged, lost)] = await world.fetch(NOT_CHARGED)
    assert uncharged == lost
    assert not lost or any(seconds > 0 for seconds in jumps)  # at a jump ahead, the worker may hold no chunk


async def test_after_the_clock_was_put_back_a_lost_workers_lease_ends_as_late_as_ever_and_a_live_one_goes_on(
    shift: Shift, database: Database
) -> None:
    async with database.transaction() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    await support.submit(database, tenant, pool, 4)
    lost, alive = await support.make_worker(database, pool, LEASE), await support.make_worker(database, pool, LEASE)
    async with database.relaxed() as conn:
        assert await support.claim(conn, pool, lost)
        watch = WorkerWatch(LEASE / 2)
        await reaping.reap(conn, watch)
        await shift(-HOUR)
        assert await reaping.reap(conn, watch) == (0, 0)
        await shift(LEASE - 1)
        assert set(await heartbeat.send(conn, [Heartbeat(alive)], LEASE)) == {alive}
        await shift(2)
        assert await reaping.reap(conn, watch) == (1, 1)


async def test_a_steward_that_leads_for_weeks_goes_on_to_make_tables_of_the_next_days_and_to_ask_for_all_duties(
    shift: Shift, settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with database.transaction() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    hints, now = AsyncMock(), [1e6]
    monkeypatch.setattr(rounds, "monotonic", lambda: now[0])
    leader = rounds.Rounds(database, hints, settings)
    await leader.begin()
    for _ in range(2 * settings.partition_days_ahead + 2):
        await leader.run()
        assert set(hints.duties.await_args.args[0]) == set(BY_NAME)
        hints.duties.await_args = None
        await support.submit(database, tenant, pool, 1)
        await shift(24 * HOUR)
        await support.submit(database, tenant, pool, 1)  # the day may begin before the next round
        now[0] += 24 * HOUR


async def test_nothing_is_dropped_as_old_while_the_clocks_of_database_and_steward_differ(
    shift: Shift, settings: Settings
) -> None:
    store = Store.of(settings)
    await retention.run(settings.database_url, 30, store)
    await shift(40 * 24 * HOUR)
    with pytest.raises(ServerUnfit, match="clock"):
        await retention.run(settings.database_url, 30, store)
