"""Claims about the money of queued work: it waits, never overspends by more than the bound, and never waits for ever."""

import asyncio
from decimal import Decimal

from app.engines.catalogue import Price
from app.queue import chunk_sweeps, reaping, service
from tests.budgets.world import TOKEN, World
from tests.queue import support


async def test_without_a_budget_chunks_are_ready_at_once_and_carry_no_budgets(world: World) -> None:
    await world.submit(8)
    assert await world.states() == {"ready": 2}
    assert await world.rows("select distinct budgets, maximum_cost, reserved_tokens from chunk") == [(None, None, None)]
    assert await world.reserve() == 0


async def test_queued_work_waits_for_money_and_goes_on_when_the_budget_is_renewed(world: World) -> None:
    await world.budget(max_cost="0.1", period="hour", alerts_at=[50])  # 100 tokens, of which an item may use 11
    await world.submit(16)
    assert await world.states() == {"unreserved": 16}  # a tenth of the money is less than two items
    ended = 0
    while await world.states():
        while await world.reserve():
            ended += await world.drain()
            await world.settle()
            budget = await world.state()
            assert budget.spent + budget.reserved <= budget.max
        await world.turn()
    assert ended == 16
    assert not await world.states()
    assert (await world.state()).reserved == 0
    assert "budget.spent" in await world.events()
    assert "budget.renewed" in await world.events()


async def test_what_was_reserved_returns_and_the_exact_cost_is_spent_when_results_are_counted(world: World) -> None:
    await world.budget(max_cost="1", period="day")
    await world.submit(4)
    assert await world.reserve() == 1
    assert (await world.state()).reserved == 44 * TOKEN
    await world.drain()
    await world.settle()
    budget = await world.state()
    assert (budget.reserved, budget.spent) == (0, 4 * 8 * TOKEN)  # each answer: 3 prompt and 5 answer tokens
    assert await world.recount() == []


async def test_a_budget_of_tokens_counts_tokens_whatever_the_price(world: World) -> None:
    world.line = await world.line_of("free", price=None)
    await world.budget(max_tokens=1000)
    await world.submit(4)
    await world.reserve()
    assert (await world.state()).reserved == 44
    await world.drain()
    await world.settle()
    assert ((await world.state()).reserved, (await world.state()).spent) == (0, 32)


async def test_while_the_steward_is_away_only_chunks_with_money_run(world: World) -> None:
    await world.budget(max_tokens=10**9)
    await world.submit(200, chunk=1)
    await world.reserve()
    assert await world.drain() == 128
    assert await world.states() == {"unreserved": 72}
    assert await world.reserve() == 72


async def test_a_paused_batch_returns_what_was_reserved_and_waits_for_money_again_when_it_is_resumed(
    world: World,
) -> None:
    await world.budget(max_tokens=10**6)
    batch_id = await world.submit(8)
    await world.reserve()
    async with world.database.durable() as conn:
        await conn.execute("update batch set state = 'paused' where batch_id = %s", (batch_id,))
    await world.settle()
    assert (await world.states(), (await world.state()).reserved) == ({"held": 2}, 0)
    async with world.database.durable() as conn:
        await conn.execute("update batch set state = 'open' where batch_id = %s", (batch_id,))
    await world.settle()
    assert await world.states() == {"unreserved": 2}
    assert await world.reserve() == 2
    async with world.database.durable() as conn:
        await conn.execute("update batch set state = 'cancelling' where batch_id = %s", (batch_id,))
    await world.settle()
    assert (await world.states(), (await world.state()).reserved) == ({}, 0)
    assert await world.recount() == []


async def test_a_lost_workers_chunk_keeps_its_money_and_what_finish_hands_back_needs_it_anew(world: World) -> None:
    await world.budget(max_tokens=10**6)
    await world.submit(4)
    await world.reserve()
    assert await world.claim() is not None
    async with world.database.durable() as conn:
        await conn.execute("update worker set lease_until = now() - interval '1 hour'")
        await reaping.reap(conn)
    assert await world.rows("select state, reserved_tokens from chunk") == [("ready", 44)]
    world.worker = await world.serve(world.pool)
    lease = await world.claim()
    assert lease is not None
    async with world.database.durable() as conn:
        items = await service.load(conn, lease)
        await service.flush(conn, lease, support.answers(items[:1]))
        await service.finish(conn, lease)
    assert await world.rows("select state, n, expected_tokens, reserved_tokens from chunk") == [
        ("delayed", 3, 33, None)
    ]
    async with world.database.relaxed() as conn:
        await chunk_sweeps.promote(conn)
    await world.settle()
    assert await world.states() == {"unreserved": 1}
    assert ((await world.state()).reserved, (await world.state()).spent) == (0, 8)


async def test_a_price_change_does_not_change_what_queued_work_costs(world: World) -> None:
    await world.budget(max_cost="1", period="total")
    await world.submit(4)
    dearer = await world.line_of("w", Price(Decimal(9000), Decimal(9000), Decimal(9000)))
    assert dearer != world.line
    await world.reserve()
    await world.drain()
    await world.settle()
    assert (await world.state()).spent == 32 * TOKEN


async def test_a_large_chunk_is_not_starved_by_small_ones_under_other_budgets(world: World) -> None:
    await world.budget(max_tokens=1000)
    await world.budget("large", max_tokens=10**6, workflow="large")
    large = await world.line_of("large")
    await world.submit(1, most=50)
    await world.reserve()
    await world.submit(1, most=800, line=large, deadline_seconds=10)
    async with world.database.durable() as conn:
        await conn.execute("update budget set reserved = 500 where name = 'b'")  # elsewhere, which will return
    for _ in range(5):
        await world.submit(1, most=50)
    assert await world.reserve() == 0
    async with world.database.durable() as conn:
        await conn.execute("update budget set reserved = 53 where name = 'b'")
    assert await world.reserve() >= 1
    assert ("large",) in await world.rows(
        "select l.workflow from chunk c join line l using (line_id) where c.state = 'ready' and l.workflow = 'large'"
    )


async def test_eight_stewards_at_once_never_reserve_more_than_the_budget(world: World) -> None:
    await world.budget(max_tokens=1000)
    await world.submit(200, chunk=1)
    await asyncio.gather(*(world.reserve() for _ in range(8)))
    budget = await world.state()
    assert budget.reserved == 11 * (await world.states())["ready"] <= 1000
    assert await world.recount() == []
