"""Claims about the most that queued work can use: it is known from its submit, and a strict budget reserves all of it."""

import pytest

from app.budgets import queued
from tests.budgets.world import TOKEN, TOY, World


async def maxima(world: World) -> set[tuple[object, ...]]:
    return set(await world.rows("select maximum_cost, maximum_tokens from chunk"))


async def test_queued_work_reserves_all_that_it_can_cost_once_its_budget_is_strict(world: World) -> None:
    await world.budget(max_cost="1")
    await world.submit(4, chunk=2)  # two items of 3 + 8 tokens, in 30 bytes each
    assert await maxima(world) == {(2 * 38 * TOKEN, 2 * 38)}
    await world.budget(max_cost="1", strict=True)
    await world.fund()
    assert (await world.state()).reserved == 4 * 38 * TOKEN
    await world.drain()
    await world.settle()
    assert ((await world.state()).reserved, (await world.state()).spent) == (0, 32 * TOKEN)
    assert await world.recount() == []


@pytest.mark.parametrize(("open_ended", "most"), [(True, 10_000), (False, 44)])
async def test_of_work_that_had_no_budget_the_most_is_guessed_from_its_estimate(
    world: World, open_ended: bool, most: int
) -> None:
    await world.submit(2, open_ended=open_ended)
    await world.budget(max_tokens=10**6, strict=True)
    assert (await queued.move(world.database, TOY, world.tenant))[0] == 1
    assert await maxima(world) == {(2 * most * TOKEN, 2 * most)}


async def test_the_most_is_within_the_context_window(world: World) -> None:
    await world.budget(max_tokens=10**6)
    await world.submit(2, most=9_990)
    assert await maxima(world) == {(2 * 10_000 * TOKEN, 2 * 10_000)}
