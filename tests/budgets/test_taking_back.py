"""Claims about what is reserved for work that has not begun: whoever can start at once takes it back."""

import asyncio
from contextlib import suppress

import pytest

from app import clock
from app.budgets import queued
from app.budgets.calls import CallBudgets, CallSize
from app.engines.service import ensure_pool
from app.errors import BudgetSpent
from app.metering.lines import SYNC, LineParts, parts_of
from app.metering.spend_labels import SpendLabels
from app.queue import pool_status
from tests.budgets.world import PRICE, TOY, World
from tests.queue import support

SIZE = CallSize(4, 6, 16, {})


@pytest.fixture
def late() -> queued.Known:
    return queued.Known()


def _line(world: World) -> LineParts:
    return parts_of(world.tenant, "key", SpendLabels("w"), "toy", SYNC, PRICE)


async def _pool(world: World, name: str, *, served: bool = True) -> int:
    """Another pool, in which the next batches go."""
    async with world.database.durable() as conn:
        world.pool = await ensure_pool(conn, name)
    if served:
        world.worker = await world.serve(world.pool)
    return world.pool


async def _idle(world: World, pool: int) -> None:
    async with world.database.durable() as conn:
        await conn.execute("update engine set intake = 'draining' where pool_id = %s", (pool,))


async def _asked(world: World, pool: int) -> list[float]:
    """The tokens by which the pool asks for engines."""
    async with world.database.durable() as conn:
        await pool_status.write(conn, await queued.asking(conn))
    [(tokens,)] = await world.rows("select tokens from pool_status where pool_id = %s", pool)
    assert isinstance(tokens, list)
    return tokens


async def _call(world: World, ours: CallBudgets, size: CallSize = SIZE) -> None:
    async with ours.reserving(_line(world), size) as call:
        call.settle(size.prompt, 0, size.expected)


async def _counts(world: World) -> bool:
    """Whether budgets and the fair order have what the chunks say."""
    async with world.database.relaxed() as conn:
        caches = await support.caches(conn)
    ready = (await world.states()).get("ready", 0)
    return await world.recount() == [] and sum(count for count, _ in caches) == ready


async def test_a_model_without_an_engine_reserves_nothing_and_others_run(world: World) -> None:
    await world.budget(max_cost="0.1", period="hour")
    await _pool(world, "dead", served=False)
    await world.submit(16)
    await _pool(world, "alive")
    await world.submit(4)
    assert await world.reserve() == 4
    assert (await world.state()).reserved == 44 * 10**6
    assert await world.drain() == 4


async def test_what_a_model_has_reserved_whose_engine_went_away_is_taken_by_one_that_has_one(world: World) -> None:
    await world.budget(max_tokens=100, period="hour")
    dead = world.pool
    await world.submit(16)
    assert await world.reserve() == 9
    await _idle(world, dead)
    budget = await world.state()
    assert (budget.begun, budget.available, budget.free) == (0, 100, 1)
    await _pool(world, "alive")
    await world.submit(4)
    assert await world.reserve() == 4
    assert await world.drain() == 4
    assert await _counts(world)


async def test_what_nobody_claims_for_a_while_is_taken_by_others_and_stands_last(
    world: World, late: queued.Known
) -> None:
    await world.budget(max_tokens=100, period="hour")
    await world.submit(16)
    slow = world.pool
    assert await queued.reserve(world.database, TOY, late) == 9
    await _pool(world, "alive")
    await world.submit(16)
    assert await queued.reserve(world.database, TOY, late) == 0  # it may still be claimed
    async with world.database.durable() as conn:
        await conn.execute("update chunk set reserved_at = now() - interval '1 minute' where reserved_at is not null")
    assert await queued.reserve(world.database, TOY, late) == 9
    assert await world.rows("select distinct pool_id from chunk where state = 'ready'") == [(world.pool,)]
    assert late.is_late(queued.Place(((await world.state()).budget_id,), slow, world.tenant))
    await world.drain()
    await world.settle()
    assert await _counts(world)


async def test_a_call_takes_what_it_needs_from_chunks_that_no_worker_has(world: World) -> None:
    await world.budget(max_tokens=100, period="hour")
    await world.submit(2, deadline_seconds=10)
    await world.submit(7, deadline_seconds=100)
    assert await world.reserve() == 9
    ours = CallBudgets(world.database)
    async with ours.keeping():
        async with ours.reserving(_line(world), CallSize(10, 10, 20, {})):
            budget = await world.state()
            assert budget.reserved <= budget.max
            assert (await world.states()) == {"ready": 7, "unreserved": 2}  # 11 tokens each
            assert await world.rows(
                "select count(*) from chunk c join batch b using (batch_id) where c.state = 'ready' and b.total = 2"
            ) == [(2,)]
            assert await _counts(world)
        await _call(world, ours)
    assert (await world.state()).spent == 10


async def test_no_call_fails_while_money_is_reserved_only_by_work_that_has_not_begun(world: World) -> None:
    await world.budget(max_tokens=999, period="hour")
    await world.submit(200, chunk=1)
    while await world.reserve():
        pass
    assert (await world.state()).free < 10
    ours = CallBudgets(world.database)
    async with ours.keeping():
        for _ in range(90):
            await _call(world, ours)
    budget = await world.state()
    assert (budget.spent, budget.spent + budget.reserved <= budget.max) == (900, True)
    assert await _counts(world)


async def test_a_process_that_reads_a_budget_anew_still_knows_what_of_it_has_begun(world: World) -> None:
    await world.budget(max_tokens=40, period="hour")
    await world.submit(3, chunk=1)
    assert await world.reserve() == 3
    assert await world.claim() is not None
    ours = CallBudgets(world.database)
    async with ours.keeping():
        async with ours.reserving(_line(world), CallSize(1, 1, 2, {})):
            for _ in range(2):
                [part] = ours._parts.values()
                assert part.budget.begun == 11 + 2
                await ours.refresh()
        async with world.database.durable() as conn:
            await conn.execute("update budget set reserved = 5")  # chunks have ended since its last report
        await ours.refresh()
        assert part.budget.begun == 0


async def test_a_call_waits_for_work_that_has_begun_and_is_told_to_come_back(world: World) -> None:
    await world.budget(max_tokens=44, period="hour")
    await world.submit(4, chunk=1)
    assert await world.reserve() == 4
    while await world.claim():
        pass
    budget = await world.state()
    assert (budget.begun, budget.available) == (44, 0)
    ours = CallBudgets(world.database)
    async with ours.keeping():
        with pytest.raises(BudgetSpent, match="44 tokens reserved for running work and calls to come; try") as refused:
            await _call(world, ours)
    assert (refused.value.again, refused.value.retry_after) == (True, 3)


async def test_a_call_that_the_window_has_no_money_for_is_told_when_it_is_renewed(world: World) -> None:
    await world.budget(max_tokens=15, period="hour")
    ours = CallBudgets(world.database)
    async with ours.keeping():
        await _call(world, ours)
        with pytest.raises(BudgetSpent, match=r"too little left: .* it is renewed on") as refused:
            await _call(world, ours)
    assert not refused.value.again
    assert refused.value.retry_after is not None
    window_to = (await world.state()).window_to
    assert window_to is not None
    assert abs(refused.value.retry_after - (window_to - clock.now()).total_seconds()) < 5


async def test_what_a_budget_could_pay_asks_for_an_engine_and_what_waits_for_money_does_not(world: World) -> None:
    await world.budget(max_tokens=1000)
    pool = await _pool(world, "cold", served=False)
    await world.submit(40)
    asked = []
    for spent in (0, 956, 957, 1000):
        async with world.database.durable() as conn:
            await conn.execute("update budget set spent = %s", (spent,))
        asked.append(await _asked(world, pool))
    assert asked == [[44.0], [44.0], [], []]  # one chunk
    async with world.database.durable() as conn:  # of what is reserved, results use a tenth
        await conn.execute(
            "update budget set spent = 957, learned_used = 10^4, learned_maximum = 10^5, learned_tokens = 10^5"
        )
    assert await _asked(world, pool) == [44.0]


async def test_what_asks_for_an_engine_is_what_is_reserved_once_there_is_one(world: World) -> None:
    budget = await world.budget(max_tokens=100, period="day")
    pool = await _pool(world, "cold", served=False)
    await world.submit(1, most=47)
    for spent, reserved in ((64, 0), (budget.max - 50, 1)):
        async with world.database.durable() as conn:
            await conn.execute("update budget set spent = %s", (spent,))
            await conn.execute("delete from worker where pool_id = %s", (pool,))
        asked = await _asked(world, pool)
        await world.serve(pool)
        assert (len(asked), await world.reserve()) == (reserved, reserved)


async def test_a_chunk_that_is_too_large_for_its_budget_asks_by_its_items_into_which_it_is_cut(world: World) -> None:
    await world.budget(max_tokens=1000)
    pool = await _pool(world, "cold", served=False)
    await world.submit(4)
    await world.budget(max_tokens=30)
    assert await _asked(world, pool) == [44.0]


async def test_a_drained_engine_serves_no_more_than_none(world: World) -> None:
    await world.budget(max_tokens=1000)
    await world.submit(4)
    await _idle(world, world.pool)
    assert await _asked(world, world.pool) == [44.0]


async def test_claims_and_calls_at_once_leave_every_count_right(world: World) -> None:
    await world.budget("all", max_tokens=2000, period="hour")
    await world.budget("w", max_tokens=1500, period="hour", workflow="w")
    await world.submit(300, chunk=1)
    await world.reserve()
    ours = CallBudgets(world.database)

    async def claims() -> None:
        for _ in range(10):
            await world.claim()

    async def calls() -> None:
        for _ in range(20):
            with suppress(BudgetSpent):  # whatever is claimed before keeps its money
                await _call(world, ours)

    async with ours.keeping():
        await asyncio.gather(claims(), calls(), claims(), calls(), world.reserve(), calls())
    for name in ("all", "w"):
        budget = await world.state(name)
        assert budget.spent + budget.reserved <= budget.max
    assert await _counts(world)
