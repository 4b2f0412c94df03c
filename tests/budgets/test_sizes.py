"""Claims about how much is reserved: what an item can cost at most, and what no budget can reserve."""

import pytest

from app.budgets import rules
from app.errors import BadInput
from tests.budgets.world import World


async def test_a_chunk_that_a_lowered_budget_cannot_pay_is_cut_into_its_items(world: World) -> None:
    await world.budget(max_tokens=1000, period="hour")
    await world.submit(8, chunk=8)
    await world.budget(max_tokens=40, period="hour")
    for _ in range(20):
        await world.reserve()
        await world.drain()
        await world.settle()
        await world.turn()
        if not await world.states():
            break
    assert not await world.states()


async def test_an_item_larger_than_any_window_is_refused_and_names_the_budget(world: World) -> None:
    await world.budget(max_tokens=1000, period="hour")
    with pytest.raises(BadInput, match=r"requests\[0\]: may use 1,003 tokens, more than 900 tokens.*budget 'b'"):
        await world.submit(2, most=1000)
    assert not await world.states()


def test_an_answer_without_a_limit_is_reserved_at_three_times_its_usual_length() -> None:
    assert rules.expected_answer(100, 8000) == 300
    assert rules.expected_answer(100, 250) == 250
    assert rules.expected_answer(100, 100) == 100
