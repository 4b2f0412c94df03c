"""What one scrape reads of the queue, in pages of PostgreSQL."""

import pytest

from app.db.pool import Connection, Database
from app.queue import overview, overview_sql
from tests.queue import support

# Batches of which none has a waiting chunk, and finished chunks that nobody has counted yet.
FILL = """
insert into batch (batch_id, request_id, tenant_id, model, endpoint, total, state, deadline)
select n, gen_random_uuid(), %(tenant)s, 'toy', '/v1/chat/completions', 1, %(state)s, now() + interval '1 day'
from generate_series(%(first)s::int, %(last)s::int) n"""
DELTAS = """
insert into batch_delta (batch_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens)
select n, 1, 0, 0, 0, 0 from generate_series(%(first)s::int, %(last)s::int) n"""


async def pages(conn: Connection) -> int:
    row = await (
        await conn.execute(f"explain (analyze, buffers, format json) {overview_sql.GAUGES}".encode())
    ).fetchone()
    assert row
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.slow
async def test_the_gauges_of_the_queue_read_no_more_of_forty_thousand_open_batches_than_of_few(
    database: Database,
) -> None:
    found = {}
    async with database.relaxed() as conn:  # filling may take longer than a durable statement may
        values = {"tenant": await support.make_tenant(conn)}
        for first, last in ((1, 8_000), (8_001, 40_000)):
            await conn.execute(FILL, {**values, "first": first, "last": last, "state": "open"})
            await conn.execute(DELTAS, {"first": first, "last": last})
            await conn.execute("analyze batch, batch_delta")
            found[last] = await pages(conn)
        told = {name: value for name, _, value in await overview.gauges(conn)}
    assert told["open_batches"] == told["fold_lag_deltas"] == overview_sql.MOST_COUNTED
    assert told["oldest_ready_seconds"] == 0
    assert found[40_000] < 1.2 * found[8_000] + 100, found


async def test_the_oldest_ready_run_shows_behind_paused_ones(database: Database) -> None:
    async with database.relaxed() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
        await conn.execute(FILL, {"tenant": tenant, "first": 1, "last": 5_000, "state": "paused"})
        await conn.execute("update batch set created_at = now() - interval '1 day'")
    await support.submit(database, tenant, pool, items=1)
    async with database.durable() as conn:
        await conn.execute("update batch set opened_at = now() - interval '9 s' where state = 'open'")
        told = {name: value for name, _, value in await overview.gauges(conn)}
    assert 9 <= told["oldest_ready_seconds"] < 3600


async def told(database: Database) -> dict[tuple[str, str], float]:
    async with database.durable() as conn:
        return {(name, label): value for name, label, value in await overview.gauges(conn)}


async def test_the_depth_of_the_queue_is_that_of_its_chunks_by_model(database: Database) -> None:
    async with database.durable() as conn:
        tenant, busy, idle = await support.make_tenant(conn), await support.make_pool(conn), "idle"
        await support.make_pool(conn, idle)
    await support.submit(database, tenant, busy, items=32, tokens=50, max_items=16)
    found = await told(database)
    assert found["waiting_tokens", "toy"] == 32 * 50
    assert found["waiting_tokens", idle] == 0


async def test_parts_that_are_away_late_batches_and_uncounted_chunks_show(database: Database) -> None:
    async with database.durable() as conn:
        tenant = await support.make_tenant(conn)
        await conn.execute(FILL, {"tenant": tenant, "first": 1, "last": 3, "state": "open"})
        await conn.execute("update batch set expires_at = now() - batch_id * interval '50 s'")
        await conn.execute(DELTAS, {"first": 1, "last": 2})
        await conn.execute("update batch_delta set at = now() - interval '90 s'")
        found = await told(database)
        assert (found["steward_leads", ""], found["notifier_connected", ""]) == (0, 0)
        assert found["overdue_batches", ""] == 2  # one is late by less than a minute
        assert found["fold_lag_seconds", ""] >= 90
        await conn.execute("select pg_advisory_lock(hashtext('slackwater steward'))")
        await conn.execute("set application_name = 'slackwater notifier'")
        found = await told(database)
        await conn.execute("select pg_advisory_unlock_all()")
    assert (found["steward_leads", ""], found["notifier_connected", ""]) == (1, 1)


async def test_the_pace_and_the_error_of_forecasts_are_those_of_the_last_note(database: Database) -> None:
    async with database.durable() as conn:
        pool = await support.make_pool(conn)
        for seconds, pace, spread in ((60, 10, 0.5), (30, 20, 0.25), (0, None, None)):
            await conn.execute(
                "insert into pace (pool_id, at, served_tokens, tokens_per_second, spread)"
                " values (%s, now() - make_interval(secs => %s), 0, %s, %s)",
                (pool, seconds, pace, spread),
            )
    found = await told(database)
    assert found["pace_tokens_per_second", "toy"] == 20
    assert found["forecast_error_ratio", "toy"] == 0.25


async def test_an_engine_that_is_being_started_is_counted_as_the_status_tells_it(database: Database) -> None:
    async with database.durable() as conn:
        await support.make_engine(conn, database, await support.make_pool(conn))
        states = []
        for change in (
            "update engine set mode = 'managed'",
            "update engine set state = 'down', reason = 'engine_down'",
            "update engine set mode = 'attached'",
            "update engine set mode = 'managed', worker_id = null",
        ):
            await conn.execute(change.encode())
            states.append({label for name, label, value in await overview.gauges(conn) if name == "engines" and value})
    assert states == [{"ready"}, {"starting"}, {"down"}, {"down"}]
