"""Claims about queued work under a budget that is added, changed or removed."""

import pytest

from app.budgets import queued, sql
from app.budgets import service as budgets
from app.queue import chunk_sweeps, service
from tests.budgets.world import TOKEN, TOY, World
from tests.queue import support


async def test_a_new_budget_begins_with_what_its_window_has_used_and_keeps_it_when_it_is_raised(world: World) -> None:
    await world.submit(4)
    await world.drain()
    await world.settle()
    assert (await world.budget(max_tokens=100)).spent == 32
    assert (await world.budget(max_tokens=200)).spent == 32
    assert (await world.budget(max_tokens=200, workflow="other")).spent == 0


async def test_queued_chunks_follow_a_budget_that_is_added_changed_or_removed(world: World) -> None:
    await world.submit(8)
    await world.budget(max_tokens=10**6, workflow="w")
    assert (await queued.move(world.database, TOY, world.tenant))[0] == 2
    assert await world.states() == {"unreserved": 2}
    await world.reserve()
    assert (await world.state()).reserved == 88
    await world.budget("second", max_tokens=10**6)
    assert (await queued.move(world.database, TOY, world.tenant))[0] == 2
    await world.settle()
    assert ((await world.states()), (await world.state()).reserved) == ({"unreserved": 2}, 0)
    await world.reserve()
    assert {(await world.state(name)).reserved for name in ("b", "second")} == {88}
    async with world.database.transaction() as conn:
        for name in ("b", "second"):
            await budgets.remove(conn, world.tenant, name)
    await queued.move(world.database, TOY, world.tenant)
    assert await world.states() == {"ready": 2}
    async with world.database.relaxed() as conn:
        assert await support.caches(conn) == [(2, 0)]
    assert await world.drain() == 2


async def test_the_steward_notices_changed_budgets_and_also_what_was_submitted_meanwhile(world: World) -> None:
    moves = queued.Moves()
    await world.submit(4)
    assert await moves.run(world.database, TOY) == 0
    await world.budget(max_tokens=10**6)
    assert await moves.run(world.database, TOY) == 1
    async with world.database.durable() as conn:  # a submit that had read the budgets before
        await conn.execute(
            "update chunk set budgets = null, maximum_cost = null, maximum_tokens = null, state = 'ready'"
        )
        await conn.execute("update sched set ready = 1")
    moves._next = 0.0
    assert await moves.run(world.database, TOY) == 1
    await world.budget(max_tokens=10**6, workflow="other")
    assert await moves.run(world.database, TOY) == 1
    assert await world.states() == {"ready": 1}
    async with world.database.relaxed() as conn:
        assert await support.caches(conn) == [(1, 0)]


async def test_what_a_worker_hands_back_long_after_a_budget_was_added_waits_for_its_money_too(world: World) -> None:
    moves = queued.Moves()
    await world.budget(max_tokens=10**6)
    await world.submit(4)
    await moves.run(world.database, TOY)
    await world.reserve()
    lease = await world.claim()
    assert lease is not None
    await world.budget("second", max_tokens=10**6)
    for _ in range(2):  # the time in which submits are moved has passed
        assert await moves.run(world.database, TOY) == 0
        moves._until, moves._next = dict.fromkeys(moves._until, 0.0), 0.0
    async with world.database.durable() as conn:
        items = await service.load(conn, lease)
        await service.flush(conn, lease, support.answers(items[:1]))
        await service.finish(conn, lease)
    assert await moves.run(world.database, TOY) == 1
    async with world.database.relaxed() as conn:
        await chunk_sweeps.promote(conn)
    await world.settle()
    await world.reserve()
    assert {(await world.state(name)).reserved for name in ("b", "second")} == {33}
    moves._until, moves._next = dict.fromkeys(moves._until, 0.0), 0.0
    assert await moves.run(world.database, TOY) == 0
    assert not moves._until


async def test_a_move_touches_only_chunks_of_the_lines_that_it_was_given(world: World) -> None:
    await world.budget(max_tokens=10**6)
    other = await world.line_of("other")
    await world.submit(4)
    await world.submit(4, line=other)
    values = {"tenant_id": world.tenant, "limit": 9, "budgets": [None], "price": [0], "context_window": [9]}
    async with world.database.relaxed() as conn:
        for line_id, moved in ((world.line, 1), (0, 0)):
            assert await (await conn.execute(sql.MOVE, values | {"line_id": [line_id]})).fetchone() == (moved,)
    found = await world.rows("select line_id, state, budgets is null from chunk order by line_id")
    assert found == [(world.line, "ready", True), (other, "unreserved", False)]


async def test_a_budget_of_tokens_that_becomes_one_of_money_reserves_what_is_queued_at_its_cost(world: World) -> None:
    moves = queued.Moves()
    await world.budget(max_tokens=10**6)
    await world.submit(4)
    await moves.run(world.database, TOY)
    await world.budget(max_cost="1")
    await moves.run(world.database, TOY)
    await world.reserve()
    assert (await world.state()).reserved == 44 * TOKEN
    await world.drain()
    await world.settle()
    assert ((await world.state()).reserved, (await world.state()).spent) == (0, 32 * TOKEN)


@pytest.mark.parametrize("running", [False, True])
async def test_a_budget_with_another_unit_reserves_in_that_unit_at_once(world: World, running: bool) -> None:
    await world.budget(max_cost="1")
    await world.submit(4)
    await world.reserve()
    lease = await world.claim() if running else None
    assert (await world.budget(max_tokens=1000)).reserved == 44
    assert await world.recount() == []
    assert (await world.budget(max_cost="2")).reserved == 44 * TOKEN
    assert (await world.budget(max_cost="3")).reserved == 44 * TOKEN
    if lease is not None:
        await support.run_chunk(world.database, lease)
    await world.drain()
    await world.settle()
    assert ((await world.state()).reserved, (await world.state()).spent) == (0, 32 * TOKEN)
    assert await world.recount() == []


async def test_queued_work_follows_a_budget_in_its_currency_and_not_one_in_another(world: World) -> None:
    moves = queued.Moves()
    await world.budget(max_cost="1 EUR")
    await world.submit(4)
    assert await world.states() == {"ready": 1}
    await moves.run(world.database, TOY)
    await world.removed()
    await world.budget(max_cost="1 USD")
    assert await moves.run(world.database, TOY) == 1
    assert await world.states() == {"unreserved": 1}
    await world.reserve()
    assert (await world.state()).reserved == 44 * TOKEN
    await world.removed()
    await world.budget(max_cost="1 EUR")
    assert await moves.run(world.database, TOY) == 1
    await world.settle()
    assert (await world.states(), (await world.state()).reserved) == ({"ready": 1}, 0)
    await world.drain()
    await world.settle()
    assert (await world.state()).spent == 0
    assert await world.recount() == []


async def test_a_budget_of_money_does_not_keep_work_waiting_that_has_no_price(world: World) -> None:
    free = await world.line_of("free", price=None)
    await world.budget(max_cost="0.001", on_limit={"queued": "refuse"})
    await world.submit(4, line=free)
    assert await world.states() == {"ready": 1}
    assert (await world.state()).reserved == 0
