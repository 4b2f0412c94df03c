"""Claims about what is kept of what each engine did."""

from dataclasses import replace
from datetime import timedelta

import pytest

from app import clock
from app.db.pool import Connection, Database
from app.headroom import samples
from app.headroom.samples import Counters, EngineSample, Look, SampleBuilder

LOOK = Look("open", 8, 4, 2, 0, 0, 0.5, 20.0, None, None)
SAMPLE = EngineSample("open", 8, 4, 2, 0, 0, 0.5, 20.0, None, None, 10, 0, 1000, 500, 1, 0)


def built(looks: list[Look]) -> EngineSample:
    """The sample of looks of one second each."""
    builder = SampleBuilder()
    builder.look(0.0, LOOK)
    assert builder.take(Counters()) is None
    for second, look in enumerate(looks, 1):
        builder.look(float(second), look)
    found = builder.take(Counters())
    assert found is not None
    return found


def test_a_sample_has_means_the_longest_reason_and_the_time_without_an_allowance() -> None:
    closed = replace(LOOK, reason="closed_slots", allowance=0, batch=0, kv_usage=None, step_ms=None)
    found = built([LOOK, LOOK, closed, LOOK])
    assert (found.reason, found.seconds, found.closed_seconds) == ("open", 4.0, 1.0)
    assert (found.allowance, found.batch, found.kv_usage, found.step_ms) == (6.0, 3.0, 0.5, 20.0)


def test_what_a_step_may_take_while_a_caller_is_there_is_not_mixed_with_what_it_may_take_alone() -> None:
    alone, beside = replace(LOOK, sync=0, allowed_ms=9000.0), replace(LOOK, sync=1, allowed_ms=50.0)
    late = replace(beside, allowed_ms=None)  # the step before the caller has not ended yet
    assert built([alone, late, beside, alone]).allowed_ms == 50.0
    assert built([alone, late]).allowed_ms is None
    assert built([alone, alone]).allowed_ms == 9000.0


async def test_nor_is_it_mixed_in_a_stretch_of_several_samples(database: Database) -> None:
    given = [(0.0, 9000.0), (0.5, 50.0), (0.0, 9000.0)]
    async with database.durable() as conn:
        for age, (sync, allowed) in enumerate(given):
            await stored(conn, 1, age, replace(SAMPLE, sync=sync, allowed_ms=allowed))
        found = await samples.history(conn, 1, clock.now() - timedelta(hours=1), 1)
    assert {each.sample.allowed_ms for each in found} <= {50.0, 9000.0}  # two stretches, if one begins just now
    assert 50.0 in {each.sample.allowed_ms for each in found}


def test_what_was_never_known_stays_unknown() -> None:
    assert built([LOOK]).predicted_ms is None


def test_a_sample_has_the_growth_of_counters_and_a_counter_that_began_anew_counts_from_zero() -> None:
    builder = SampleBuilder()
    grown = []
    for second, tokens in enumerate((900, 1000, 40)):
        builder.look(float(second), LOOK)
        grown.append(builder.take(Counters(batch_tokens=tokens)))
    assert [found and found.batch_tokens for found in grown] == [None, 100, 40]


def test_counts_of_the_scheduler_and_of_the_worker_are_not_compared() -> None:
    builder, grown = SampleBuilder(), []
    for second, (inside, tokens) in enumerate(((True, 900), (True, 1000), (False, 5000), (False, 5020), (True, 1100))):
        builder.look(float(second), LOOK)
        grown.append(builder.take(Counters(inside, batch_tokens=tokens)))
    assert [found and found.batch_tokens for found in grown] == [None, 100, 0, 20, 0]


async def stored(conn: Connection, engine: int, age: float, sample: EngineSample) -> None:
    await samples.record(conn, engine, sample, clock.monotonic() - age)


async def test_old_samples_become_minutes_that_keep_sums_and_weighted_means(database: Database) -> None:
    async with database.durable() as conn:
        await conn.execute(
            """insert into engine_sample
               select 1, date_trunc('minute', now()) - interval '27 hours' + x.at, x.seconds, x.reason, 0, x.allowance,
                      0, 0, 0, 0, null, null, null, null, 100, 10, 1, 0
               from (values (interval '10 s', 10, 'open', 8), (interval '40 s', 30, 'hold', 4),
                            (interval '59 s', 10, 'hold', 4)) x (at, seconds, reason, allowance)"""
        )
        await stored(conn, 1, 0, SAMPLE)
        await samples.fold(conn)
        columns = "seconds, reason, round(allowance::numeric, 2)::float8, batch_tokens, kv_usage"
        rows = await (await conn.execute(f"select {columns} from engine_minute".encode())).fetchall()
        assert rows == [(50.0, "hold", 4.8, 300, None)]
        left = await (await conn.execute("select batch_tokens from engine_sample")).fetchall()
        assert left == [(1000,)]


async def test_minutes_are_kept_for_35_days(database: Database) -> None:
    async with database.durable() as conn:
        await stored(conn, 1, 0, SAMPLE)
        for days in (34, 36):
            await conn.execute(
                f"insert into engine_minute select engine_id, at - interval '{days} days', seconds, reason, closed_seconds,"
                " allowance, batch, sync, sync_waiting, frozen, kv_usage, step_ms, predicted_ms, allowed_ms, batch_tokens,"
                " sync_tokens, yields, evictions from engine_sample".encode()
            )
        await samples.fold(conn)
        [(count,)] = await (await conn.execute("select count(*) from engine_minute")).fetchall()
    assert count == 1


@pytest.mark.parametrize(("points", "expected"), [(1000, 6), (2, 2)])
async def test_a_history_has_at_most_so_many_points_and_all_tokens(
    database: Database, points: int, expected: int
) -> None:
    async with database.durable() as conn:
        for age in range(0, 60, 10):
            await stored(conn, 1, age, SAMPLE)
        await stored(conn, 2, 0, SAMPLE)
        found = await samples.history(conn, 1, clock.now() - timedelta(seconds=65), points)
    assert expected <= len(found) <= expected + 1
    assert sum(each.sample.batch_tokens for each in found) == 6000
    assert [each.at for each in found] == sorted(each.at for each in found)
