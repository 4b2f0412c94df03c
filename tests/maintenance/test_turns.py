"""Claims about turns at duties: rows decide who does what, whoever got a message."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from app.db import pool
from app.db.pool import Database
from app.duties import schedule, standing
from app.duties.schedule import BY_NAME, DUTIES, Duty
from app.duties.turn import turn
from app.settings import Settings
from app.tasks import broker
from testing.waiting import eventually
from tests.maintenance.support import asked, make_due, read
from workers.maintenance import duties
from workers.maintenance import worker as worker_module
from workers.maintenance.work import Work
from workers.maintenance.worker import Worker

Act = Callable[[Work], Awaitable[None]]


@pytest.fixture
def acts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Act]:
    """What is done for each duty; a test may replace some."""
    mine = dict(duties.BY_NAME)
    monkeypatch.setattr(duties, "BY_NAME", mine)
    return mine


def test_every_duty_of_the_schedule_has_a_function_and_ends_before_the_broker_takes_its_message_back() -> None:
    assert list(duties.BY_NAME) == [duty.name for duty in DUTIES]
    assert all(duty.limit_seconds < broker.LONGEST_SECONDS for duty in DUTIES)


async def test_a_duty_is_asked_for_when_it_is_due_and_again_if_nothing_comes_of_it(database: Database) -> None:
    assert set(await asked(database)) == set(BY_NAME)
    assert await asked(database) == []
    found = await read(database)
    async with database.relaxed() as conn:
        row = await (await conn.execute("select max(due_at - asked_at) from duty")).fetchone()
    assert row is not None
    assert row[0].total_seconds() == schedule.RETRY_SECONDS
    assert not any(each.succeeded_at or each.stuck for each in found.values())
    await make_due(database)
    assert set(await asked(database)) == set(BY_NAME)


async def test_an_idle_worker_connects_again_by_itself(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.0)

    async def pids() -> set[int]:
        query = (
            "select pid from pg_stat_activity"
            " where datname = current_database() and application_name = 'slackwater maintenance'"
        )
        async with database.relaxed() as conn:
            return {pid for (pid,) in await (await conn.execute(query)).fetchall()}

    with Worker(settings):
        first = await eventually(pids)
        async with database.relaxed() as conn:
            await conn.execute("select pg_terminate_backend(pid) from unnest(%s::int[]) pid", (list(first),))
        assert await eventually(pids, until=lambda found: found - first)


async def test_two_workers_that_get_the_same_message_do_it_once(
    database: Database, settings: Settings, acts: dict[str, Act]
) -> None:
    await asked(database)
    runs, go_on = [], threading.Event()

    async def slow(work: Work) -> None:
        runs.append(1)
        await asyncio.to_thread(go_on.wait)

    acts["lengths"] = slow
    with Worker(settings) as one, Worker(settings) as other, ThreadPoolExecutor(4) as threads:
        first = threads.submit(one.do, "lengths")
        await eventually(lambda: runs)
        for worker in (one, other, other):
            await asyncio.to_thread(worker.do, "lengths")
        assert not first.done()
        go_on.set()
        await asyncio.wrap_future(first)
        await asyncio.to_thread(other.do, "lengths")  # the message comes once more, after it was done
    assert runs == [1]
    stands = (await read(database))["lengths"]
    assert stands.succeeded_at is not None
    assert stands.due_at > stands.succeeded_at


async def test_a_duty_that_fails_says_why_is_asked_for_again_and_stops_no_other(
    database: Database, settings: Settings, acts: dict[str, Act]
) -> None:
    await asked(database)

    async def fails(work: Work) -> None:
        raise ValueError("out of order")

    async def refused(work: Work) -> None:
        async with work.database.relaxed() as conn:
            await conn.execute("select 1 / 0")

    acts |= {"ledger": fails, "freeze": refused}
    with Worker(settings) as worker:
        for name in BY_NAME:
            await asyncio.to_thread(worker.do, name)
    found = await read(database)
    assert {name: each.error for name, each in found.items() if each.error} == {
        "ledger": "ValueError: out of order",
        "freeze": "DivisionByZero: division by zero",
    }
    assert {name for name, each in found.items() if each.succeeded_at is None} == {"ledger", "freeze"}
    assert found["ledger"].failed_at is not None
    assert (found["ledger"].due_at - found["ledger"].failed_at).total_seconds() == BY_NAME["ledger"].retry_seconds
    del acts["ledger"]
    acts["ledger"] = duties.ledger
    await make_due(database)
    await asked(database)
    with Worker(settings) as worker:
        await asyncio.to_thread(worker.do, "ledger")
    assert (await read(database))["ledger"].error is None


async def test_a_duty_that_takes_longer_than_its_limit_is_ended_as_a_failure(
    database: Database, settings: Settings
) -> None:
    await asked(database)

    async def hangs(work: Work) -> None:
        async with work.database.relaxed() as conn:
            await conn.execute("select pg_sleep(600)")

    with Worker(settings) as worker:
        short = Duty("days", 600, 0.05, "")
        await asyncio.to_thread(worker._thread.call, worker.attempt(short, hangs))
    assert (await read(database))["days"].error == "TimeoutError: It was not done within 0.05 s."
    async with database.relaxed() as conn:
        query = "select from pg_stat_activity where query like '%pg_sleep%' and pid <> pg_backend_pid() and state = 'active'"
        await eventually(lambda: rows(conn, query), until=lambda left: not left)


async def rows(conn: psycopg.AsyncConnection, query: str) -> list[tuple[object, ...]]:
    return await (await conn.execute(query.encode())).fetchall()


async def test_a_worker_that_ends_leaves_its_duty_to_the_next_one(
    database: Database, settings: Settings, acts: dict[str, Act]
) -> None:
    await asked(database)
    begun = threading.Event()

    async def endless(work: Work) -> None:
        begun.set()
        await asyncio.Event().wait()

    acts["days"] = endless
    with Worker(settings) as worker, ThreadPoolExecutor(1) as threads:
        running = threads.submit(worker.do, "days")
        await asyncio.to_thread(begun.wait)
        worker.stop()
        await asyncio.wrap_future(running)
    stands = (await read(database))["days"]
    assert stands.error is None
    assert stands.succeeded_at is None
    assert await asked(database) == ["days"]


async def test_who_has_lost_the_lock_ends_and_writes_nothing(
    database: Database, settings: Settings, acts: dict[str, Act], monkeypatch: pytest.MonkeyPatch
) -> None:
    await asked(database)
    monkeypatch.setattr("app.duties.turn.KEEP_SECONDS", 0.01)
    begun, ended = threading.Event(), threading.Event()

    async def endless(work: Work) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    acts["days"] = endless
    with Worker(settings) as worker, ThreadPoolExecutor(1) as threads:
        running = threads.submit(worker.do, "days")
        await asyncio.to_thread(begun.wait)
        async with database.relaxed() as conn:
            await conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'slackwater duty'"
            )
        await asyncio.wrap_future(running)
        assert ended.is_set()
        stands = (await read(database))["days"]
        assert (stands.error, stands.succeeded_at) == (None, None)
        async with turn(settings.database_url, BY_NAME["days"]) as next_one:  # the next message finds it free
            assert next_one is not None


async def test_a_duty_without_success_is_late_after_its_period_and_stuck_after_a_day(database: Database) -> None:
    await asked(database)
    async with database.relaxed() as conn:
        await conn.execute("update duty set since = now() - interval '25 hours'")
        await standing.succeed(conn, BY_NAME["ledger"], 1.5)
    found = await read(database)
    assert {name for name, each in found.items() if not each.stuck} == {"ledger", "audit_verify"}
    assert (found["ledger"].late_seconds, found["ledger"].took_ms) == (0, 1500)
    assert 3600 <= found["audit_verify"].late_seconds < 3700, "it is done once a day"
