"""Claims about queued work under a budget that is added, changed or removed."""

from app.batches import budgets as verbs
from app.batches import funding
from app.metering import ledger
from tests.metering.world import World
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
    assert await funding.move(world.database, world.tenant) == 2
    assert await world.states() == {"unfunded": 2}
    await world.fund()
    assert (await world.state()).held == 88
    await world.budget("second", max_tokens=10**6)
    assert await funding.move(world.database, world.tenant) == 2
    await world.settle()
    assert ((await world.states()), (await world.state()).held) == ({"unfunded": 2}, 0)
    await world.fund()
    assert {(await world.state(name)).held for name in ("b", "second")} == {88}
    async with world.database.transaction() as conn:
        for name in ("b", "second"):
            await verbs.remove(conn, world.tenant, name)
    await funding.move(world.database, world.tenant)
    assert await world.states() == {"ready": 2}
    async with world.database.relaxed() as conn:
        assert await support.caches(conn) == [(2, 0)]
    assert await world.drain() == 2


async def test_the_steward_notices_changed_budgets_and_also_what_was_submitted_meanwhile(world: World) -> None:
    moves = funding.LaneMoves()
    await world.submit(4)
    assert await moves.run(world.database) == 0
    await world.budget(max_tokens=10**6)
    assert await moves.run(world.database) == 1
    async with world.database.durable() as conn:  # a submit that had read the budgets before
        await conn.execute("update chunk set lane = null, worst = null, worst_tokens = null, state = 'ready'")
        await conn.execute("update sched set ready = 1")
    moves._next = 0.0
    assert await moves.run(world.database) == 1
    await world.budget(max_tokens=10**6, workflow="other")
    assert await moves.run(world.database) == 1
    assert await world.states() == {"ready": 1}
    async with world.database.relaxed() as conn:
        assert await support.caches(conn) == [(1, 0)]


async def test_a_deleted_account_takes_its_budgets_with_it(world: World) -> None:
    await world.budget(max_tokens=10**6)
    await world.submit(4)
    async with world.database.transaction() as conn:
        await ledger.forget(conn, world.tenant)
    assert await world.rows("select (select count(*) from budget) + (select count(*) from lane)") == [(0,)]
