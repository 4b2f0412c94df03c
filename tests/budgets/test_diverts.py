"""Claims about waiting work that moves to a cheaper model."""

from dataclasses import replace
from decimal import Decimal

import orjson
import pytest

from app.budgets import queued
from app.engines.catalogue import Catalogue, Price
from app.engines.rate_card import Rate, Work, checked
from app.engines.service import ensure_pool
from tests.budgets.world import MODEL, PRICE, TOKEN, World
from tests.queue import support


async def test_from_a_share_on_work_that_is_not_critical_moves_to_a_fallback_and_results_name_it(world: World) -> None:
    small = replace(MODEL, name="small", served="small", price=Price(Decimal(1), Decimal(1), Decimal(1)))
    models = Catalogue({"toy": MODEL, "small": small}, {"toy": MODEL, "small": small})
    await world.moves(models, ["small"])
    await world.budget(max_tokens=1000)
    async with world.database.durable() as conn:
        await conn.execute("update budget set spent = 850")
    batch_id = await world.submit(4)
    await queued.reserve(world.database, models)
    [(model, critical)] = await world.rows(
        "select distinct l.model, l.critical from chunk c join line l using (line_id)"
    )
    assert (model, critical) == ("small", False)
    assert await world.rows("select distinct model from item_payload where batch_id = %s", batch_id) == [("small",)]
    assert await world.events() == ["budget.diverted"]
    await support.serve_all(world.database)
    await queued.reserve(world.database, models)
    pools = await world.rows("select p.model from chunk join pool p using (pool_id) where state = 'ready'")
    assert pools == [("small",)]


@pytest.mark.parametrize("limit", ["alert", "wait"])
async def test_a_budget_that_only_alerts_moves_nothing_and_the_event_names_the_one_that_met_the_condition(
    world: World, limit: str
) -> None:
    small = replace(MODEL, name="small", served="small")
    models = Catalogue({"toy": MODEL, "small": small}, {"toy": MODEL, "small": small})
    await world.moves(models, ["small"], at=60)
    await world.budget("company", max_cost="2000 USD", on_limit={"queued": limit})
    await world.budget("euros", max_cost="10 EUR")  # counts none of this work
    await world.budget("research", max_cost="300 USD", workflow="w")
    async with world.database.durable() as conn:
        await conn.execute("update budget set spent = max / 100 * 61 where name = 'company'")
        await conn.execute("update budget set spent = max where name = 'euros'")
    await world.submit(4)
    await queued.reserve(world.database, models)
    alerting = limit == "alert"
    assert await world.rows("select distinct model from chunk join line using (line_id)") == [
        ("toy" if alerting else "small",)
    ]
    events = await world.rows("select data from event where kind = 'budget.diverted'")
    assert [orjson.loads(data)["budget"] for (data,) in events] == ([] if alerting else ["company"])


async def test_what_moves_reserves_less_if_it_costs_less_and_more_if_its_answers_may_be_longer(world: World) -> None:
    half = Price(Decimal(500), Decimal(500), Decimal(2000))
    small = replace(MODEL, name="small", served="small", price=half, context_window=100_000)
    models = Catalogue({"toy": MODEL, "small": small}, {"toy": MODEL, "small": small})
    await world.moves(models, ["small"])
    await world.budget(max_tokens=10**7)
    async with world.database.durable() as conn:
        await conn.execute("update budget set spent = 9 * 10^6")
    line = await world.line_of("w", Price(Decimal(1000), Decimal(1000), Decimal(4000)))
    limited, open_ended = await world.submit(1, line=line), await world.submit(1, line=line, open_ended=True)
    amounts = "select maximum_tokens, maximum_cost, expected_cost from chunk where batch_id = %s"
    assert await world.rows(amounts, limited) == [(38, 62 * TOKEN, 35 * TOKEN)]
    await queued.reserve(world.database, models)
    assert await world.rows(amounts, limited) == [(38, 31 * TOKEN, 35 * TOKEN // 2)]
    assert await world.rows(amounts, open_ended) == [(38 + 90_000, (31 + 180_000) * TOKEN, 35 * TOKEN // 2)]


async def test_what_moves_costs_what_its_kind_of_work_costs(world: World) -> None:
    prices = {Work.BATCH: Decimal(5), Work.IDLE: Decimal(2)}
    card = [Rate((work,), price, price, price) for work, price in prices.items()]
    small = replace(MODEL, name="small", served="small", prices=checked(card))
    models = Catalogue({"toy": MODEL, "small": small}, {"toy": MODEL, "small": small})
    await world.moves(models, ["small"])
    await world.budget(max_tokens=1000)
    async with world.database.durable() as conn:
        await conn.execute("update budget set spent = 850")
    await world.submit(4, expires=True)
    await world.submit(4, expires=False)
    await queued.reserve(world.database, models)
    found = await world.rows("""select b.expires_at is not null, l.model, l.price_in from chunk c join batch b using (batch_id)
      join line l on l.line_id = c.line_id order by 1""")
    assert found == [(False, "small", 2 * TOKEN), (True, "small", 5 * TOKEN)]
    assert await world.events() == ["budget.diverted"]  # once, of both


async def test_what_moves_to_a_model_of_another_currency_waits_for_the_money_of_its_budget(world: World) -> None:
    euros = replace(MODEL, price=Price(Decimal(1000), Decimal(1000), Decimal(1000), "EUR"))
    dollars = replace(MODEL, name="usd", served="usd", price=PRICE)
    models = Catalogue({"toy": euros, "usd": dollars}, {"toy": euros, "usd": dollars})
    world.line = await world.line_of("w", euros.price)
    await world.moves(models, ["usd"], at=50)
    await world.budget("tokens", max_tokens=10**6)
    await world.budget("usd", max_cost="0.05 USD", reserve="maximum")
    async with world.database.transaction() as conn:
        await conn.execute("update budget set spent = max / 100 * 60 where name = 'tokens'")
        pool = await ensure_pool(conn, "usd")
    worker = await world.serve(pool)
    await world.submit(20)
    for _ in range(20):
        await queued.reserve(world.database, models)
        await support.drain(world.database, pool, worker)
        await world.settle()
    budget = await world.state("usd")
    assert 0 < budget.spent <= budget.max
    assert (await world.states()).keys() == {"unreserved"}
