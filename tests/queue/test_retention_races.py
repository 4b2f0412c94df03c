"""Retention beside other transactions: killed at any step, blocked, or run during retries and the creation of partitions."""

import asyncio
import itertools
import os
import signal
import sys
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from app.clock import now
from app.db.pool import Database
from app.queue import partitions, retention
from app.settings import Settings
from testing.waiting import eventually
from tests.queue.past import KEEP, Past, deliver

BACKENDS = "from pg_stat_activity where application_name = 'slackwater retention' and datname = current_database()"


WAITERS = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


class Died(BaseException):
    """Stands for a SIGKILL: the code after it does not run."""


async def server_has_noticed(past: Past) -> None:
    """Wait until the server has ended the closed connection, and with it the lock that excludes a second run."""
    await eventually(lambda: past.one(f"select not exists (select {BACKENDS})"))


async def test_a_run_that_dies_between_any_two_steps_is_finished_by_the_next(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute, steps = psycopg.AsyncConnection.execute, [0, 0]
    survivor = await past.batch(now().date(), final_ago=0)

    async def dying(conn: Any, query: Any, *values: Any, **options: Any) -> Any:
        if "retention" in conn.info.get_parameters().get("application_name", ""):
            if steps[0] == steps[1]:
                await conn.close()
                raise Died
            steps[0] += 1
        return await execute(conn, query, *values, **options)

    monkeypatch.setattr(psycopg.AsyncConnection, "execute", dying)
    for fatal in itertools.count():
        day = await past.day(ago=40 + fatal)
        await past.batch(day, final_ago=35)
        await deliver(past)
        steps[:] = [0, fatal]
        try:
            assert (await past.retire()).dropped == {day: 1}
        except Died:
            steps[1] = -1
            await server_has_noticed(past)
            left = [day] if await past.tables(day) else []  # nothing, before the last step
            assert list((await past.retire()).dropped) == left, f"died before step {fatal}"
            assert await past.tables(day) == set()
        else:
            break
    assert fatal >= 12
    assert await past.one("select request_id from batch") == survivor
    assert await past.one("select count(*) from item_payload") == 5


async def test_a_day_left_half_detached_by_kill_9_is_finished_by_the_next_run(past: Past, settings: Settings) -> None:
    day = await past.day(ago=40)
    await past.batch(day, final_ago=35)
    await deliver(past)
    store = f"Store.of(Settings(data_dir={str(settings.data_dir)!r}))"
    code = f"""import asyncio
from app.queue import retention
from app.settings import Settings
from app.storage.store import Store
asyncio.run(retention.run({past.database.url!r}, {KEEP}, {store}))"""
    pending = "select exists (select from pg_inherits where inhdetachpending)"
    async with past.database.durable() as reader, reader.transaction():
        await reader.execute("set local idle_in_transaction_session_timeout = 0")  # a process may take long to start
        await reader.execute("select count(*) from item_payload")  # a detach waits for such readers
        run = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
        await eventually(lambda: past.one(pending))
        os.kill(run.pid, signal.SIGKILL)
        await run.wait()
        await past.conn.execute(f"select pg_terminate_backend(pid) {BACKENDS}")
        await server_has_noticed(past)
    assert await past.one(pending)
    async with past.database.durable() as reader, reader.transaction():
        await reader.execute("select count(*) from item_payload")  # this reader is not waited for
        assert list((await past.retire()).dropped) == [day]
    assert await past.tables(day) == set()


@pytest.mark.slow
async def test_a_long_reader_delays_a_day_and_nothing_is_blocked(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_PATIENCE", "set lock_timeout = '2s'")
    day, other = await past.day(ago=40), await past.day(ago=39)
    await past.batch(day, final_ago=35)
    await deliver(past)
    async with past.database.durable() as reader, reader.transaction():
        await reader.execute("select count(*) from item_payload")
        run = asyncio.create_task(past.retire())
        async with past.database.relaxed() as conn:
            while not run.done():  # submits and reads continue: nobody but the run itself waits for a lock
                submit = asyncio.create_task(past.batch(now().date(), items=1))
                while not submit.done():
                    assert (await (await conn.execute(WAITERS)).fetchone() or ())[0] <= 1
                await submit
        assert run.result().dropped == {}
        assert run.result().left == [str(day), str(other)]
    assert set((await past.retire()).dropped) == {day, other}


async def test_a_batch_that_is_retried_during_retention_is_kept_with_its_items(past: Past) -> None:
    day = await past.day(ago=40)
    await past.batch(day, final_ago=35)
    await deliver(past)
    async with past.database.transaction() as conn:
        await conn.execute("update batch set state = 'open', finalized_at = null")
        run = asyncio.create_task(past.retire())
        await eventually(
            lambda: past.one("select exists (select from pg_locks where not granted)"), "it waits for the row"
        )
        assert not run.done()
    assert (await run).dropped == {}
    assert (await past.counts())["item_payload"] == 5
    assert await past.one("select count(*) from batch") == 1


async def test_new_partitions_can_be_created_while_old_ones_are_dropped(past: Past) -> None:
    await past.day(ago=40)
    async with past.database.transaction() as conn:
        await conn.execute("drop table item_payload_" + f"{now().date() + timedelta(days=2):%Y%m%d}")
    dropped, created = await asyncio.gather(past.retire(), _create(past.database))
    assert len(dropped.dropped) == 1
    assert created


async def _create(database: Database) -> list[str]:
    async with database.transaction() as conn:
        return await partitions.create(conn, 2)
