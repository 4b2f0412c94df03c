"""Claims about the bound of what is overspent, and about what a round of funding reads."""

from app.queue import funding as queue_funding
from app.queue import funding_sql
from tests.metering.world import World
from tests.timing import note


async def test_what_is_overspent_is_at_most_the_bound_that_the_metric_shows(world: World) -> None:
    await world.budget(max_tokens=400, period="hour")
    await world.submit(60)
    async with world.database.durable() as conn:  # the results of the last day have used a tenth of the worst
        await conn.execute("update lane set tokens = 10000, worst_tokens = 100000")
    assert await world.fund() == 20
    budget = await world.state()
    assert budget.held == 20 * 5  # 125 per mille of three items of 11, rounded up
    async with world.database.relaxed() as conn:
        await conn.execute("update chunk set worst = worst_tokens")  # the bound is of money
        gauges = {name: value for name, _, value in await queue_funding.gauges(conn)}
    bound = gauges["budget_overshoot_bound"]
    assert bound == 20 * (33 - 5)
    await world.drain()
    await world.settle()
    budget = await world.state()
    assert budget.max < budget.spent == 480 <= budget.max + bound
    assert budget.held == 0
    await world.submit(1)
    assert await world.fund() == 0


async def test_a_round_reads_few_pages_however_much_waits(world: World) -> None:
    await world.budget(max_tokens=1000)
    await world.submit(1)
    columns = (
        "batch_id, run, tenant_id, pool_id, lo, hi, n, est_tokens, deadline, state, line_id, lane, worst, worst_tokens"
    )
    async with world.database.durable() as conn:
        copies = f"insert into chunk ({columns}) select {columns} from chunk, generate_series(1, 20000)"
        await conn.execute(copies.encode())
        await conn.execute("vacuum analyze chunk")
    where = {"lane": 1, "pool_id": world.pool, "strict": False, "per_mille": 1000, "places": 128}
    terms = {"free_cost": 0, "free_tokens": 0, "largest_cost": None, "largest_tokens": 900}
    pages = {}
    async with world.database.durable() as conn:
        for name, query in (("waiting", funding_sql.WAITING), ("fund", funding_sql.FUND), ("first", funding_sql.FIRST)):
            explained = await conn.execute(f"explain (analyze, buffers, format json) {query}".encode(), where | terms)
            [(plan,)] = await explained.fetchall()
            pages[name] = plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"]
    note(f"pages of a round in which 20,000 chunks wait for money: {pages}")
    assert pages["waiting"] <= 20
    assert pages["fund"] <= 300  # it locks 128 chunks
    assert pages["first"] <= 10
