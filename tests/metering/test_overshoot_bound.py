"""Claims about the metric that bounds what is overspent."""

from app.batches import budget_events
from app.metering import budgets
from app.metering.lines import SYNC, LineParts, parts_of
from app.metering.slices import CallSize, Slices
from app.metering.spend_labels import SpendLabels
from app.queue import funding as queue_funding
from tests.metering.world import PRICE, TOKEN, World

SIZE = CallSize(4, 6, 16, {"prompt": "a b c d"})


async def _bound(world: World, name: str = "b") -> float:
    async with world.database.relaxed() as conn:
        gauges = await budgets.gauges(conn, await queue_funding.beyond(conn))
    return next(value for gauge, of, value in gauges if (gauge, of) == ("budget_overshoot_bound", f"acme/{name}"))


async def _tenth(world: World) -> None:
    """The results of the last day have used a tenth of the worst."""
    async with world.database.durable() as conn:
        await conn.execute("update lane set tokens = 10000, worst_tokens = 100000")


def _call(world: World) -> LineParts:
    return parts_of(world.tenant, "key", SpendLabels("w"), "toy", SYNC, PRICE)


async def test_what_is_overspent_is_at_most_the_bound(world: World) -> None:
    await world.budget(max_tokens=400, period="hour")
    await world.submit(60)
    await _tenth(world)
    assert await world.fund() == 20
    budget = await world.state()
    assert budget.held == 20 * 5  # 125 per mille of three items of 11, rounded up
    bound = await _bound(world)
    assert bound == 20 * (33 - 5)
    await world.drain()
    assert await _bound(world) >= 80  # results that are not counted yet
    await world.settle()
    budget = await world.state()
    assert budget.max < budget.spent == 480 <= budget.max + bound
    assert (budget.held, await _bound(world)) == (0, 0)
    await world.submit(1)
    assert await world.fund() == 0


async def test_each_budget_of_a_lane_has_its_bound_in_its_unit(world: World) -> None:
    await world.budget("money", max_cost="400")
    await world.budget("tokens", max_tokens=10**6)
    await world.budget("other", max_tokens=10**6, workflow="other")
    await world.submit(4)
    await _tenth(world)
    assert await world.fund() == 1
    found = [await _bound(world, name) for name in ("money", "tokens", "other")]
    assert found == [44 * TOKEN - 5_500_000, 44 - 6, 0]


async def test_a_strict_budget_has_no_bound_but_zero(world: World) -> None:
    await world.budget(max_tokens=10**6, strict=True)
    await world.submit(4)
    assert await world.fund() == 1
    slices = Slices(world.database, budget_events.reached)
    async with slices.keeping(), slices.holding(_call(world), SIZE):
        for part in slices._slices.values():
            await slices._report(part)
        assert await _bound(world) == 0


async def test_calls_in_an_engine_count_with_what_their_answers_can_cost_beyond_their_holds(world: World) -> None:
    await world.budget("money", max_cost="400")
    await world.budget(max_tokens=10**6)
    slices = Slices(world.database, budget_events.reached)
    async with slices.keeping():
        async with slices.holding(_call(world), SIZE), slices.holding(_call(world), SIZE):
            for part in slices._slices.values():
                await slices._report(part)
            assert (await _bound(world), await _bound(world, "money")) == (20, 20 * TOKEN)
        for part in slices._slices.values():
            await slices._report(part)
        assert (await _bound(world), await _bound(world, "money")) == (0, 0)


async def test_a_process_that_has_died_has_no_calls(world: World) -> None:
    await world.budget(max_tokens=10**6)
    slices = Slices(world.database, budget_events.reached)
    async with slices.keeping(), slices.holding(_call(world), SIZE):
        for part in slices._slices.values():
            await slices._report(part)
        async with world.database.durable() as conn:
            await conn.execute("update budget_slice set seen_at = now() - interval '2 minutes'")
        assert await _bound(world) == 0
