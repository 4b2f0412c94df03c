"""What one scrape reads of the deliveries, in pages of PostgreSQL."""

from app.db.pool import Connection, Database
from app.webhooks import deliveries, history_sql
from tests.queue import support

ENDPOINT = """
insert into endpoint (tenant_id, name, url, kinds, secret) values (%s, 'n', 'https://x.example/', '{batch.queued}', 'x')
returning endpoint_id"""
# Seven of ten are delivered, and the dead ones are all among the newest.
FILL = """
with v as (insert into event (tenant_id, kind, model, batch_id, run, data, n)
  select %(tenant)s, 'batch.queued', 'm', 1, 1, '{}', n from generate_series(%(first)s::int, %(last)s::int) n
  returning event_id, n)
insert into delivery (event_id, endpoint_id, state)
select event_id, %(endpoint)s, case when n > %(last)s - (%(last)s - %(first)s) / 10 then 'dead'
  when n %% 10 = 0 then 'pending' when n %% 10 = 1 then 'held' else 'delivered' end
from v order by n"""


async def pages(conn: Connection) -> int:
    row = await (
        await conn.execute(f"explain (analyze, buffers, format json) {history_sql.GAUGES}".encode())
    ).fetchone()
    assert row
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def test_the_gauges_of_webhooks_read_no_more_of_a_hundred_thousand_deliveries_than_of_few(
    database: Database,
) -> None:
    found = {}
    async with database.relaxed() as conn:  # filling may take longer than a durable statement may
        tenant = await support.make_tenant(conn)
        endpoint = (await (await conn.execute(ENDPOINT, [tenant])).fetchone())[0]
        for first, last in ((1, 20_000), (20_001, 100_000)):
            await conn.execute(FILL, {"tenant": tenant, "endpoint": endpoint, "first": first, "last": last})
            await conn.execute("analyze delivery")
            found[last] = await pages(conn)
        told = {of: value for name, of, value in await deliveries.gauges(conn) if name == "deliveries"}
    assert told == {"pending": 1000.0, "held": 1000.0, "dead": 1000.0, "sending": 0.0}
    assert found[100_000] < 1.5 * found[20_000] + 100, found
