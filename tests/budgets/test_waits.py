"""Claims about what a batch that waits for money is told: for which budget, and for how long."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from app.batches import phases, why_chain
from app.batches.why_chain import Why
from app.budgets import queued
from app.budgets import service as budgets
from app.budgets.queued import MOST_READY, MoneyWait
from app.budgets.rules import ItemSizes
from app.budgets.service import of_lines
from app.engines.service import ensure_pool
from app.queue import chunking, copy_format, ingest, overview, reads
from app.queue.estimate import Confidence, Estimate, Missing
from tests.budgets.world import MODEL, World
from tests.queue import support

DONE_IN_A_MINUTE = Estimate(0, 1.0, 10.0, 60.0, Confidence.HIGH)


async def _open_ended(world: World, items: int) -> int:
    """A batch of items whose answers usually have 10 tokens, and 903 at most. Returns its id."""
    sizes = ItemSizes([13] * items, [10] * items, [900] * items, [30] * items)
    async with world.database.transaction() as conn:
        under = (await of_lines(conn, [world.line]))[world.line]
        amounts = under.amounts(sizes, MODEL.context_window)
        batch = replace(await support.new_batch(conn, world.tenant, world.pool, items), line_id=world.line)
        rows = [copy_format.payload_row(batch.batch_id, n, None, None, 13, b"{}") for n in range(items)]
        payload = [copy_format.HEADER, *rows, copy_format.TRAILER]
        cuts = chunking.cut(sizes.est_tokens, max_tokens=10**6, max_items=4, line_id=world.line, amounts=amounts)
        await ingest.enqueue(conn, batch, payload, cuts)
    return batch.batch_id


async def _wait(world: World, batch_id: int) -> MoneyWait:
    found = await queued.money_wait(world.database, batch_id)
    assert found is not None
    return found


async def _told(world: World, wait: MoneyWait) -> str:
    """What `why` says of the wait of the only batch."""
    [(request_id,)] = await world.rows("select request_id from batch")
    [sight] = await reads.snapshots(world.database, [(world.tenant, request_id)])  # type: ignore[list-item]
    assert sight is not None
    [message] = [link.message for link in why_chain.explain(*sight, wait).chain if link.code == "budget"]
    return message


async def test_answers_without_a_limit_are_expected_to_use_what_is_reserved_for_them(world: World) -> None:
    await world.budget(max_tokens=1000, period="hour")
    batch_id = await _open_ended(world, 20)  # 33 tokens are reserved for each, of 903
    assert (await _wait(world, batch_id)).windows == 0
    again = await _open_ended(world, 20)
    assert (await _wait(world, again)).windows == 1


async def test_if_one_budget_reserves_the_maximum_all_do(world: World) -> None:
    await world.budget("wide", max_tokens=10**6)
    await world.budget("b", max_tokens=20_000, period="hour")
    await world.budget("careful", max_tokens=10**6, reserve="maximum", period="total")
    await world.submit(8, most=8)
    async with world.database.durable() as conn:  # the results of the last day have used a tenth of the most
        await conn.execute("update budget set learned_used = 10000, learned_maximum = 100000, learned_tokens = 100000")
        await conn.execute("update chunk set maximum_tokens = 15000")
    [(batch_id,)] = await world.rows("select batch_id from batch")
    wait = await _wait(world, int(str(batch_id)))
    assert wait.budget.name == "b"
    assert wait.windows > 0
    assert "and the batch takes 3 windows" in await _told(world, replace(wait, own_windows=3))
    assert "windows" not in await _told(world, replace(wait, own_windows=1))


async def test_each_window_has_room_for_one_item_at_least_unless_the_maximum_is_reserved(world: World) -> None:
    await world.budget(max_tokens=1000, period="hour")
    batch_id = await world.submit(16)
    await world.budget(max_tokens=1, period="hour")
    wait = await _wait(world, batch_id)
    assert (wait.windows, wait.too_large) == (16, False)
    assert "and the batch takes 16 windows" in await _told(world, wait)
    await world.budget(max_tokens=1, period="hour", reserve="maximum")
    wait = await _wait(world, batch_id)
    assert (wait.too_large, wait.seconds) == (True, None)
    assert "it has a maximum below what an item may use, so raise it" in await _told(world, wait)


async def test_the_windows_that_a_batch_takes_do_not_count_what_comes_before_it(world: World) -> None:
    await world.budget(max_tokens=50, period="hour")
    await world.submit(64)
    wait = await _wait(world, batch_id := await world.submit(8))  # 88 tokens, behind 704
    assert (wait.windows > 10, wait.own_windows) == (True, 1), batch_id


async def test_a_budget_that_is_never_renewed_is_what_a_batch_waits_for_longest(world: World) -> None:
    await world.budget("daily", max_tokens=40, period="day")
    await world.budget("all", max_tokens=50, period="total")
    batch_id = await world.submit(16)  # 176 tokens: four more days, and more than there will ever be
    wait = await _wait(world, batch_id)
    assert (wait.budget.name, wait.seconds) == ("all", None)
    never = replace(DONE_IN_A_MINUTE, eta_seconds=None, confidence=Confidence.NONE, missing=Missing.MONEY)
    assert wait.delayed(DONE_IN_A_MINUTE) == never


async def test_of_two_budgets_the_one_whose_windows_take_longer_decides(world: World) -> None:
    await world.budget("hourly", max_tokens=40, period="hour")
    await world.budget("weekly", max_tokens=150, period="week")
    async with world.database.durable() as conn:
        await conn.execute("update budget set window_to = now() + interval '3 days' where name = 'weekly'")
    wait = await _wait(world, await world.submit(16))
    assert (wait.budget.name, wait.windows) == ("weekly", 1)


async def _unserved(world: World, items: int) -> int:
    """A batch of a model without an engine, beside one that is served."""
    async with world.database.durable() as conn:
        world.pool = await ensure_pool(conn, "dead")
    return await world.submit(items)


async def _why(world: World, batch_id: int) -> tuple[Why, str]:
    """The chain of a batch, and the code that the steward notes."""
    [(request_id,)] = await world.rows("select request_id from batch where batch_id = %s", batch_id)
    [sight] = await reads.snapshots(world.database, [(world.tenant, request_id)])  # type: ignore[list-item]
    assert sight is not None
    return await why_chain.explained(world.database, *sight), phases.code(*sight)


async def _spend(world: World, amount: int) -> None:
    async with world.database.durable() as conn:
        await conn.execute("update budget set spent = %s", (amount,))


@pytest.mark.parametrize("items", [4, 400])
async def test_without_an_engine_a_batch_waits_for_one_until_its_budget_is_spent(world: World, items: int) -> None:
    await world.budget(max_tokens=1000, period="day")
    batch_id = await _unserved(world, items)
    why, noted = await _why(world, batch_id)
    assert why.waiting is not None
    assert (why.waiting.code, noted) == ("no_engine", "no_engine")
    codes = [link.code for link in why.chain]
    several_windows = ["budget"] if items == 400 else []
    assert codes == ["no_engine", *several_windows, "next", "eta_unknown"]
    await _spend(world, 1000)
    why, noted = await _why(world, batch_id)
    assert why.waiting is not None
    assert (why.waiting.code, noted) == ("budget", "budget")


async def _chunks(world: World) -> tuple[float, float]:
    """Those that could be claimed, and those that wait for money, by the metrics."""
    async with world.database.relaxed() as conn:
        told = {(name, of): value for name, of, value in await overview.gauges(conn)}
        money = {(name, of): value for name, of, value in await budgets.gauges(conn)}
    return told["ready_chunks", "toy"], money["unreserved_chunks", "toy"]


async def test_what_is_not_reserved_only_because_others_come_first_waits_for_its_turn(world: World) -> None:
    await world.budget(max_tokens=10**9)
    await world.rows("update engine set allowance = 8, reason = 'open' returning 1")
    first, last = await world.submit(1200), await world.submit(4)
    assert await world.reserve() == MOST_READY
    for _ in range(2):
        why, noted = await _why(world, last)
        assert why.waiting is not None
        assert (why.waiting.code, noted) == ("own_batches", "own_batches")
        assert why.estimate is not None
        assert why.estimate.position == 300
        assert await _chunks(world) == (301, 0)
        await world.reserve()
    await _spend(world, 10**9 - 128 * 44)
    await world.rows("delete from chunk where state = 'ready' and batch_id = %s and lo < 40 returning 1", first)
    assert await world.reserve() == 0
    why, noted = await _why(world, last)
    assert why.waiting is not None
    assert (why.waiting.code, noted) == ("budget", "budget")
    assert (await _chunks(world))[1] == 173


async def _in_part(world: World) -> None:
    await world.reserve()
    assert await world.drain() == 4


async def _out_of_money(world: World) -> None:
    await _in_part(world)
    await world.rows("update budget set spent = 44, reserved = 0 returning 1")
    assert await world.reserve() == 0


async def _without_an_engine_since(world: World) -> None:
    await _out_of_money(world)
    await world.rows("update engine set intake = 'draining' returning 1")


async def _behind_another_pool(world: World) -> None:
    await world.rows("update budget set reserved = 44 returning 1")
    async with world.database.durable() as conn:
        toy, world.pool = world.pool, await ensure_pool(conn, "other")
    await world.serve(world.pool)
    await world.submit(16)
    await world.rows("update chunk set deadline = now() where pool_id = %s returning 1", world.pool)
    world.pool = toy
    assert await world.reserve() == 0


@pytest.mark.parametrize(
    "until", [_in_part, _out_of_money, _without_an_engine_since, _behind_another_pool], ids=lambda each: each.__name__
)
async def test_work_that_waits_for_money_is_not_ahead_of_what_its_budget_does_not_count(
    world: World, until: Callable[[World], Awaitable[None]]
) -> None:
    await world.budget(max_tokens=50, period="day", workflow="w")
    await world.submit(16)
    await until(world)
    assert (await reads.prospect(world.database, world.tenant, "toy")).ahead_tokens == 0
    last = await world.submit(4, line=await world.line_of("other"))
    why, _ = await _why(world, last)
    assert why.estimate is not None
    assert why.estimate.position == 0
    assert "own_batches" not in [link.code for link in why.chain]


async def test_a_paused_batch_under_a_budget_waits_for_its_owner(world: World) -> None:
    await world.budget(max_tokens=1000)
    batch_id = await world.submit(4)
    async with world.database.durable() as conn:
        await conn.execute("update batch set state = 'paused'")
    why, noted = await _why(world, batch_id)
    assert why.waiting is not None
    assert (why.waiting.code, noted) == ("paused", "paused")


async def test_work_that_waits_for_an_engine_shows_as_such_with_a_budget_and_without(world: World) -> None:
    async def seen() -> tuple[tuple[str, ...], bool, bool, tuple[float, float], dict[str, float]]:
        async with world.database.durable() as conn:
            await conn.execute("update batch set opened_at = now() - interval '9 s'")
            told = await overview.overview(conn)
            told_of = {(name, of): value for name, of, value in await overview.gauges(conn)}
            money = {of: value for name, of, value in await budgets.gauges(conn) if name == "unreserved_chunks"}
        depth = told_of["ready_chunks", "dead"], told_of["waiting_tokens", "dead"]
        oldest = told_of["oldest_ready_seconds", ""]
        return tuple(told.waiting), (told.oldest_waiting_seconds or 0) >= 9, oldest >= 9, depth, money

    await _unserved(world, 4)
    idle = {"toy": 0.0, "dead": 0.0}
    assert await seen() == (("dead",), True, True, (1, 44), idle)
    await world.rows("delete from chunk returning 1")
    await world.rows("update sched set ready = 0 returning 1")
    await world.budget(max_tokens=1000)
    await _unserved(world, 4)
    assert await seen() == (("dead",), True, True, (1, 44), idle)
    await _spend(world, 1000)
    assert await seen() == ((), True, False, (0, 0), idle | {"dead": 1.0})
