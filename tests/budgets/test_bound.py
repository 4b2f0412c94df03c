"""Claims about the metric that bounds what is overspent."""

import pytest

from app.budgets import service as budgets
from app.budgets.calls import CallBudgets, CallSize
from app.metering.lines import SYNC, LineParts, parts_of
from app.metering.spend_labels import SpendLabels
from app.queue import chunk_sweeps, reaping, service
from tests.budgets.world import PRICE, TOKEN, World
from tests.queue import support

SIZE = CallSize(4, 6, 16, {"prompt": "a b c d"})


async def _bound(world: World, name: str = "b") -> float:
    async with world.database.relaxed() as conn:
        gauges = await budgets.gauges(conn)
    return next(value for gauge, of, value in gauges if (gauge, of) == ("budget_overshoot_bound", f"acme/{name}"))


async def _tenth(world: World) -> None:
    """The results of the last day have used a tenth of the most."""
    async with world.database.durable() as conn:
        await conn.execute("update budget set learned_used = 10000, learned_maximum = 100000, learned_tokens = 100000")


def _call(world: World) -> LineParts:
    return parts_of(world.tenant, "key", SpendLabels("w"), "toy", SYNC, PRICE)


async def test_what_is_overspent_is_at_most_the_bound(world: World) -> None:
    await world.budget(max_tokens=400, period="hour")
    await world.submit(60)
    await _tenth(world)
    assert await world.reserve() == 20
    budget = await world.state()
    assert budget.reserved == 20 * 15  # 125 per mille of three items of 38, rounded up
    bound = await _bound(world)
    assert bound == 20 * (3 * 38 - 15)
    await world.drain()
    assert await _bound(world) >= 80  # results that are not counted yet
    await world.settle()
    budget = await world.state()
    assert budget.max < budget.spent == 480 <= budget.max + bound
    assert (budget.reserved, await _bound(world)) == (0, 0)
    await world.submit(1)
    assert await world.reserve() == 0


async def _lose_one_with_half_of_its_results(world: World) -> None:
    lease = await world.claim()
    assert lease is not None
    async with world.database.durable() as conn:
        items = await service.load(conn, lease)
        await service.flush(conn, lease, support.answers(items[:2]))
        await conn.execute("update worker set lease_until = now() - interval '1 hour'")
        await reaping.reap(conn)


@pytest.mark.parametrize("state", ["paused", "cancelling"])
async def test_what_a_lost_worker_stored_is_in_the_bound_until_it_is_counted(world: World, state: str) -> None:
    await world.budget("money", max_cost="400")
    await world.budget(max_tokens=10**6)
    batch_id = await world.submit(4)
    assert await world.reserve() == 1
    await _lose_one_with_half_of_its_results(world)
    async with world.database.durable() as conn:
        await conn.execute("update batch set state = %s where batch_id = %s", (state, batch_id))
    async with world.database.relaxed() as conn:
        await chunk_sweeps.sweep(conn)
    assert (await _bound(world), await _bound(world, "money")) == (16, 16 * TOKEN)
    async with world.database.durable() as conn:
        await conn.execute("update batch set state = 'cancelling' where batch_id = %s", (batch_id,))
    await world.settle()
    assert ((await world.state()).spent, await _bound(world), await _bound(world, "money")) == (16, 0, 0)


async def test_each_budget_has_its_bound_in_its_unit(world: World) -> None:
    await world.budget("money", max_cost="400")
    await world.budget("tokens", max_tokens=10**6)
    await world.budget("other", max_tokens=10**6, workflow="other")
    await world.submit(4)
    await _tenth(world)
    assert await world.reserve() == 1
    found = [await _bound(world, name) for name in ("money", "tokens", "other")]
    assert found == [133 * TOKEN, 133, 0]  # of 152, 19 are reserved


async def test_a_budget_that_only_alerts_has_no_bound(world: World) -> None:
    await world.budget("queued", max_tokens=400, on_limit={"queued": "alert"})
    await world.budget("calls", max_tokens=400, on_limit={"synchronous": "alert"})
    async with world.database.relaxed() as conn:
        names = {name for name, _, _ in await budgets.gauges(conn)}
    assert "budget_spent_ratio" in names
    assert names.isdisjoint({"budget_overshoot", "budget_overshoot_bound"})


async def test_a_budget_that_reserves_the_maximum_has_no_bound_but_zero(world: World) -> None:
    await world.budget(max_tokens=10**6, reserve="maximum")
    await world.submit(4)
    assert await world.reserve() == 1
    ours = CallBudgets(world.database)
    async with ours.keeping(), ours.reserving(_call(world), SIZE):
        for part in ours._parts.values():
            await ours._report(part)
        assert await _bound(world) == 0


async def test_calls_in_an_engine_count_with_what_their_answers_can_cost_beyond_what_is_reserved(world: World) -> None:
    await world.budget("money", max_cost="400")
    await world.budget(max_tokens=10**6)
    ours = CallBudgets(world.database)
    async with ours.keeping():
        async with ours.reserving(_call(world), SIZE), ours.reserving(_call(world), SIZE):
            for part in ours._parts.values():
                await ours._report(part)
            assert (await _bound(world), await _bound(world, "money")) == (20, 20 * TOKEN)
        for part in ours._parts.values():
            await ours._report(part)
        assert (await _bound(world), await _bound(world, "money")) == (0, 0)


async def test_a_process_that_has_died_has_no_calls(world: World) -> None:
    await world.budget(max_tokens=10**6)
    ours = CallBudgets(world.database)
    async with ours.keeping(), ours.reserving(_call(world), SIZE):
        for part in ours._parts.values():
            await ours._report(part)
        async with world.database.durable() as conn:
            await conn.execute("update reservation set seen_at = now() - interval '2 minutes'")
        assert await _bound(world) == 0
