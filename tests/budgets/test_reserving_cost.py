"""Claims about what a round of the steward reads."""

from app.budgets import sql
from tests.budgets.world import World
from tests.timing import note


async def test_a_round_reads_few_pages_however_much_waits(world: World) -> None:
    budget = await world.budget(max_tokens=1000)
    await world.submit(1)
    columns = "batch_id, run, tenant_id, pool_id, lo, hi, n, est_tokens, deadline, state, line_id, budgets, "
    columns += "maximum_cost, maximum_tokens"
    async with world.database.relaxed() as conn:  # filling may take longer than a durable statement may
        copies = f"insert into chunk ({columns}) select {columns} from chunk, generate_series(1, 20000)"
        await conn.execute(copies.encode())
    async with world.database.durable() as conn:
        await conn.execute("vacuum analyze chunk")
        [(version,)] = await (await conn.execute("select xmin::text from budget")).fetchall()
    where = {
        "budgets": [budget.budget_id],
        "tenant_id": world.tenant,
        "pool_id": world.pool,
        "whole": False,
        "per_mille": 1000,
        "places": 128,
        "ids": [budget.budget_id],
        "versions": [version],
    }
    terms = {"free_cost": 0, "free_tokens": 0, "largest_cost": None, "largest_tokens": 900}
    pages = {}
    async with world.database.durable() as conn:
        for name, query in (("waiting", sql.WAITING), ("reserve", sql.RESERVE), ("first", sql.FIRST)):
            explained = await conn.execute(f"explain (analyze, buffers, format json) {query}".encode(), where | terms)
            [(plan,)] = await explained.fetchall()
            pages[name] = plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"]
    note(f"pages of a round in which 20,000 chunks wait for money: {pages}")
    assert pages["waiting"] <= 20
    assert pages["reserve"] <= 300  # it locks 128 chunks
    assert pages["first"] <= 10
