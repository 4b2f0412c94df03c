"""Claims about waiting work that moves to a cheaper model."""

from dataclasses import replace
from decimal import Decimal

from app.budgets import queued
from app.budgets import service as budgets
from app.engines.catalogue import Catalogue, Price
from tests.budgets.world import MODEL, World


async def test_from_a_share_on_work_that_is_not_critical_moves_to_a_fallback_and_results_name_it(world: World) -> None:
    small = replace(MODEL, name="small", served="small", price=Price(Decimal(1), Decimal(1), Decimal(1)))
    models = Catalogue({"toy": MODEL, "small": small}, {"toy": MODEL, "small": small})
    async with world.database.transaction() as conn:
        terms = {"max_tokens": 1000, "divert_at": 80, "fallback": ["small"]}
        await budgets.put(conn, models, world.tenant, "b", terms)
        await conn.execute("update budget set spent = 850")
    batch_id = await world.submit(4)
    await queued.reserve(world.database, models)
    [(model, critical)] = await world.rows(
        "select distinct l.model, l.critical from chunk c join line l using (line_id)"
    )
    assert (model, critical) == ("small", False)
    assert await world.rows("select distinct model from item_payload where batch_id = %s", batch_id) == [("small",)]
    assert await world.events() == ["budget.diverted"]
    await queued.reserve(world.database, models)
    pools = await world.rows("select p.model from chunk join pool p using (pool_id) where state = 'ready'")
    assert pools == [("small",)]
