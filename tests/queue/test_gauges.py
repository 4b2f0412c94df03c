"""What one scrape reads of the queue, in pages of PostgreSQL."""

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


async def test_the_gauges_of_the_queue_read_no_more_of_forty_thousand_open_batches_than_of_few(
    database: Database,
) -> None:
    found = {}
    async with database.durable() as conn:
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
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
        await conn.execute(FILL, {"tenant": tenant, "first": 1, "last": 5_000, "state": "paused"})
        await conn.execute("update batch set created_at = now() - interval '1 day'")
    await support.submit(database, tenant, pool, items=1)
    async with database.durable() as conn:
        await conn.execute("update batch set opened_at = now() - interval '9 s' where state = 'open'")
        told = {name: value for name, _, value in await overview.gauges(conn)}
    assert 9 <= told["oldest_ready_seconds"] < 60
