"""Claims about budgets that become strict while work is queued: from then on its holds are all that it can cost."""

import pytest

from app.batches import funding
from tests.metering.world import TOKEN, TOY, World


async def worsts(world: World) -> set[tuple[object, ...]]:
    return set(await world.rows("select worst, worst_tokens from chunk"))


@pytest.mark.parametrize("funded", [False, True])
async def test_queued_work_is_held_at_all_that_it_can_cost_once_its_budget_is_strict(
    world: World, funded: bool
) -> None:
    await world.budget(max_cost="1")
    await world.submit(4, chunk=2)  # two items of 3 + 8 tokens, in 30 bytes each
    if funded:
        await world.fund()
    assert await worsts(world) == {(22 * TOKEN, 22)}
    await world.budget(max_cost="1", strict=True)
    assert (await funding.move(world.database, TOY, world.tenant))[0] == 2
    await world.settle()
    assert await worsts(world) == {((22 + 60) * TOKEN, 22 + 60)}
    assert (await funding.move(world.database, TOY, world.tenant))[0] == 0
    await world.fund()
    assert (await world.state()).held == 2 * 82 * TOKEN
    await world.drain()
    await world.settle()
    assert ((await world.state()).held, (await world.state()).spent) == (0, 32 * TOKEN)
    assert await world.recount() == []


async def test_what_was_queued_under_a_strict_budget_stays_as_it_is_when_another_one_becomes_strict(
    world: World,
) -> None:
    await world.budget(max_tokens=1000, strict=True)
    await world.submit(2)
    assert await worsts(world) == {(2 * 38 * TOKEN, 2 * 38)}
    await world.budget("second", max_tokens=1000, strict=True)
    assert (await funding.move(world.database, TOY, world.tenant))[0] == 1
    assert await worsts(world) == {(2 * 38 * TOKEN, 2 * 38)}


async def test_an_answer_without_a_limit_of_which_only_an_estimate_is_known_may_fill_the_context_window(
    world: World,
) -> None:
    await world.submit(2, open_ended=True)
    await world.budget(max_tokens=10**6, strict=True)
    assert (await funding.move(world.database, TOY, world.tenant))[0] == 1
    assert await worsts(world) == {(2 * 10_000 * TOKEN, 2 * 10_000)}


async def test_nothing_is_held_beyond_the_context_window(world: World) -> None:
    await world.budget(max_tokens=10**6)
    await world.submit(2, most=9_990)
    for strict in (True, False, True):
        await world.budget(max_tokens=10**6, strict=strict)
        await funding.move(world.database, TOY, world.tenant)
    assert await worsts(world) == {(2 * 10_000 * TOKEN, 2 * 10_000)}


async def test_the_steward_notices_that_a_budget_has_become_strict(world: World) -> None:
    moves = funding.LaneMoves()
    await world.budget(max_tokens=10**6)
    await world.submit(4)
    await moves.run(world.database, TOY)
    await world.budget(max_tokens=10**6, strict=True)
    assert await moves.run(world.database, TOY) == 1
