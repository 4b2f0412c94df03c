"""Claims about the most that queued work can use: it is known from its submit, and a budget may reserve all of it."""

import pytest

from app.budgets import queued
from app.budgets.calls import CallBudgets, CallSize
from app.budgets.rules import ItemSizes
from app.budgets.service import of_lines
from app.metering.lines import SYNC, parts_of
from app.metering.spend_labels import SpendLabels
from app.queue import held_items, service
from app.queue.held_items import HeldItem
from testing.waiting import eventually
from tests.budgets.world import PRICE, TOKEN, TOY, World
from tests.queue import support


async def maxima(world: World) -> set[tuple[object, ...]]:
    return set(await world.rows("select maximum_cost, maximum_tokens from chunk"))


async def test_queued_work_reserves_all_that_it_can_cost_once_its_budget_says_so(world: World) -> None:
    await world.budget(max_cost="1")
    await world.submit(4, chunk=2)  # two items of 3 + 8 tokens, in 30 bytes each
    assert await maxima(world) == {(2 * 38 * TOKEN, 2 * 38)}
    await world.budget(max_cost="1", reserve="maximum")
    await world.reserve()
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
    await world.budget(max_tokens=10**6, reserve="maximum")
    assert (await queued.move(world.database, TOY, world.tenant))[0] == 1
    assert await maxima(world) == {(2 * most * TOKEN, 2 * most)}


async def test_the_most_is_within_the_context_window(world: World) -> None:
    await world.budget(max_tokens=10**6)
    await world.submit(2, most=9_990)
    assert await maxima(world) == {(2 * 10_000 * TOKEN, 2 * 10_000)}


@pytest.mark.parametrize(
    ("answers", "longest"),
    [
        pytest.param(0, 40_000, id="texts of an embedding, each with its own window"),
        pytest.param(20_000, 10_000 + 20_000, id="several answers, together longer than the window"),
        pytest.param(2_000, 10_000, id="one answer"),
    ],
)
async def test_the_most_of_an_item_has_room_for_all_its_texts_and_answers(
    world: World, answers: int, longest: int
) -> None:
    await world.budget(max_tokens=10**7)
    async with world.database.durable() as conn:
        under = (await of_lines(conn, [world.line]))[world.line]
    sizes = ItemSizes([10 + answers], [answers], [answers], [40_000])
    assert list(under.amounts(sizes, 10_000).maximum_tokens) == [longest]


async def test_the_most_that_a_waiting_turn_can_cost_follows_its_body(world: World) -> None:
    await world.budget(max_tokens=10**6, reserve="maximum")
    batch_id = await world.submit(1)
    body = b"x" * 7500
    async with world.database.transaction() as conn:
        await held_items.rewrite(conn, HeldItem(batch_id, body, False, None, len(body)))
    assert await maxima(world) == {((7500 + 38) * TOKEN, 7500 + 38)}
    await world.reserve()
    assert (await world.state()).reserved == 7500 + 38


async def test_a_waiting_turn_can_cost_no_more_than_its_context_window(world: World) -> None:
    await world.budget(max_tokens=10**6, reserve="maximum")
    batch_id = await world.submit(1)
    body = b"x" * 30_000
    async with world.database.transaction() as conn:
        await held_items.rewrite(conn, HeldItem(batch_id, body, False, None, len(body), window=10_000))
    assert await maxima(world) == {(10_000 * TOKEN, 10_000)}


async def test_what_a_worker_hands_back_keeps_its_share_by_its_estimate(world: World) -> None:
    await world.budget(max_tokens=10**6, reserve="maximum")
    await world.submit(2)
    async with world.database.durable() as conn:
        await conn.execute("update item_payload set est_tokens = case seq when 0 then 90 else 10 end")
        await conn.execute("update chunk set est_tokens = 100, maximum_tokens = 1000, maximum_cost = 5000")
    await world.reserve()
    lease = await world.claim()
    assert lease is not None
    async with world.database.durable() as conn:
        [_, short] = await service.load(conn, lease)
        await service.flush(conn, lease, support.answers([short]))
        await service.finish(conn, lease)
    assert await maxima(world) == {(4500, 900)}
    assert await world.rows("select maximum_cost, maximum_tokens from batch_delta") == [(500, 100)]


async def test_a_budget_that_only_alerts_stops_nothing_and_counts_all(world: World) -> None:
    await world.budget(max_tokens=20, on_limit={"queued": "alert", "synchronous": "alert"}, alerts_at=[50])
    await world.submit(4)
    assert await world.states() == {"ready": 1}
    await world.drain()
    await world.settle()
    ours = CallBudgets(world.database)
    line = parts_of(world.tenant, "key", SpendLabels("w"), "toy", SYNC, PRICE)
    async with ours.keeping(), ours.reserving(line, CallSize(4, 6, 16, {})) as call:
        call.settle(4, 0, 6)
    budget = await world.state()
    assert (budget.spent, budget.reserved) == (42, 0)
    assert await world.events() == ["budget.alert", "budget.spent"]


async def test_a_process_keeps_nothing_of_a_budget_whose_calls_only_alert(world: World) -> None:
    await world.budget(max_tokens=100_000, on_limit={"synchronous": "alert"})
    ours = CallBudgets(world.database)
    line = parts_of(world.tenant, "key", SpendLabels("w"), "toy", SYNC, PRICE)
    async with ours.keeping():
        for _ in range(3):
            async with ours.reserving(line, CallSize(400, 600, 1600, {})) as call:
                call.settle(400, 0, 600)
        await eventually(world.state, "the calls are spent", until=lambda budget: budget.spent == 3000)
        assert (await world.state()).reserved == 0


async def test_queued_work_may_wait_where_calls_go_on(world: World) -> None:
    await world.budget(max_tokens=20, on_limit={"synchronous": "alert"})
    ours = CallBudgets(world.database)
    line = parts_of(world.tenant, "key", SpendLabels("w"), "toy", SYNC, PRICE)
    async with ours.keeping():
        for _ in range(3):
            async with ours.reserving(line, CallSize(4, 6, 16, {})) as call:
                call.settle(4, 0, 6)
    assert (await world.state()).spent == 30
    await world.submit(1)
    assert await world.reserve() == 0
