"""Claims about the latencies by minute: nothing is counted twice, and what ran beside is kept apart."""

from datetime import timedelta

import pytest

from app import clock
from app.db.pool import Database
from app.metering import latency, sketch
from app.metering.latency import MinuteLatencies


async def test_what_is_stored_twice_is_counted_once_and_processes_are_added(database: Database) -> None:
    one, other = MinuteLatencies(database), MinuteLatencies(database)
    for process in (one, other):
        process.add("m", beside=False, first_token_ms=100, gaps=[0.01, 0.01])
        await process.store()
        await process.store()
        process.add("m", beside=False, first_token_ms=200, gaps=[])
        await process.store()
    async with database.durable() as conn:
        found = await latency.read(conn, clock.now() - timedelta(minutes=2), 3600)
    assert sum(each.requests for each in found) == 4
    times = sketch.merge(each.first_token for each in found)
    assert sum(times) == 4
    assert sketch.quantile(times, 1.0) == pytest.approx(200, rel=0.06)
    assert sum(sketch.merge(each.gap for each in found)) == 4


async def test_answers_beside_batch_work_are_counted_apart_from_those_alone(database: Database) -> None:
    process = MinuteLatencies(database)
    process.add("m", beside=True, first_token_ms=300, gaps=[])
    process.add("m", beside=False, first_token_ms=100, gaps=[])
    process.add("n", beside=False, first_token_ms=100, gaps=[])
    await process.store()
    async with database.durable() as conn:
        found = await latency.read(conn, clock.now() - timedelta(minutes=2), 86_400, "m")
    assert {each.beside: each.requests for each in found} == {False: 1, True: 1}


def test_of_a_long_answer_64_gaps_are_counted() -> None:
    process = MinuteLatencies.__new__(MinuteLatencies)
    process._minutes = {}
    process.add("m", beside=False, first_token_ms=1, gaps=[0.02] * 1000)
    [minute] = process._minutes.values()
    assert 60 <= sum(minute.gap.values()) <= 64


async def test_minutes_are_kept_for_eight_days(database: Database) -> None:
    process = MinuteLatencies(database)
    process.add("m", beside=False, first_token_ms=1, gaps=[])
    await process.store()
    async with database.durable() as conn:
        await conn.execute(
            "insert into latency_minute select minute - interval '9 days', writer, model, beside, 1, '{}', '{}'"
            " from latency_minute"
        )
        await latency.forget_old(conn)
        rows = await (await conn.execute("select from latency_minute")).fetchall()
    assert len(rows) == 1
