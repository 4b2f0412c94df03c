"""Claims about the money of queued work: it waits, never overspends by more than the bound, and never waits for ever."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.batches import budgets as verbs
from app.batches import funding, item_worsts, lifecycle
from app.batches.budget_lanes import of_lines
from app.batches.item_worsts import ItemSizes
from app.db.pool import Database
from app.engines import catalogue
from app.engines.catalogue import Catalogue, Price
from app.errors import BadInput, BudgetSpent
from app.metering import budgets, ledger
from app.metering.budget_rules import Budget
from app.metering.lines import Lines, parts_of
from app.metering.spend_labels import SpendLabels
from app.queue import chunk_sweeps, chunking, copy_format, funding_sql, ingest, reaping, service
from app.queue import funding as queue_funding
from app.queue.types import Lease
from app.settings import PACKAGE
from tests.queue import support
from tests.timing import note

MODELS = catalogue.load(PACKAGE / "models.toml")
PRICE = Price(Decimal(1000), Decimal(1000), Decimal(1000))  # a token costs a thousandth of a dollar
MODEL = replace(MODELS.models["smollm2-135m-instruct"], name="toy", served="toy", price=PRICE, context_window=10_000)
TOY = Catalogue({"toy": MODEL}, {"toy": MODEL})
TOKEN = 10**6  # its cost, in the unit of a budget


class World:
    """An account with one line, its pool, and a worker."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.tenant = self.pool = self.worker = self.line = 0

    async def begin(self, workflow: str = "w") -> None:
        async with self.database.durable() as conn:
            self.tenant = await support.make_tenant(conn)
            self.pool = await support.make_pool(conn)
        self.worker = await support.make_worker(self.database, self.pool)
        self.line = await self.line_of(workflow)

    async def line_of(self, workflow: str, price: Price | None = PRICE) -> int:
        parts = parts_of(self.tenant, "key", SpendLabels(workflow, critical=False), "toy", "batch", price)
        [line_id] = await Lines().ids(self.database, [parts])
        return line_id

    async def budget(self, name: str = "b", **terms: object) -> Budget:
        async with self.database.transaction() as conn:
            return await verbs.put(conn, MODELS, self.tenant, name, terms)

    async def state(self, name: str = "b") -> Budget:
        async with self.database.relaxed() as conn:
            return next(budget for budget in await budgets.listing(conn, self.tenant) if budget.name == name)

    async def submit(
        self, items: int, *, most: int = 8, chunk: int = 4, line: int | None = None, **more: object
    ) -> int:
        """A batch of items with a prompt of 3 tokens and answers of at most `most`. Returns its id."""
        line = line or self.line
        sizes = ItemSizes([3 + most] * items, [most] * items, [most] * items, [30] * items)
        async with self.database.transaction() as conn:
            lane = (await of_lines(conn, [line])).get(line)
            worsts = lane.worsts(sizes, MODEL) if lane else None
            batch = replace(await support.new_batch(conn, self.tenant, self.pool, items), line_id=line, **more)
            rows = [copy_format.payload_row(batch.batch_id, n, None, None, 3 + most, b"{}") for n in range(items)]
            payload = [copy_format.HEADER, *rows, copy_format.TRAILER]
            cuts = chunking.cut(sizes.est_tokens, max_tokens=10**6, max_items=chunk, line_id=line, worsts=worsts)
            await ingest.enqueue(conn, batch, payload, cuts)
        return batch.batch_id

    async def fund(self) -> int:
        return await funding.fund(self.database, TOY)

    async def settle(self) -> None:
        async with self.database.relaxed() as conn:
            await chunk_sweeps.sweep(conn)
        async with self.database.transaction() as conn:
            await lifecycle.settle(conn)

    async def claim(self) -> Lease | None:
        async with self.database.relaxed() as conn:
            return await service.claim(conn, self.pool, self.worker)

    async def drain(self) -> int:
        """Run what is ready. Returns the number of chunks."""
        return len(await support.drain(self.database, self.pool, self.worker))

    async def states(self) -> dict[str, int]:
        return dict(await self.rows("select state, count(*)::int from chunk group by 1"))

    async def rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        async with self.database.relaxed() as conn:
            return [tuple(row) for row in await (await conn.execute(query, values)).fetchall()]

    async def recount(self) -> list[budgets.Drift]:
        async with self.database.transaction() as conn:
            return await funding.recount(conn)

    async def events(self) -> list[str]:
        return [
            str(kind)
            for (kind,) in await self.rows("select kind from event where kind like 'budget.%%' order by event_id")
        ]

    async def turn(self) -> None:
        """Let the windows end now."""
        async with self.database.durable() as conn:
            await conn.execute("update budget set window_to = now()")
        async with self.database.transaction() as conn:
            await funding.turn(conn)


@pytest.fixture
async def world(database: Database) -> World:
    found = World(database)
    await found.begin()
    return found


async def test_without_a_budget_chunks_are_ready_at_once_and_carry_no_lane(world: World) -> None:
    await world.submit(8)
    assert await world.states() == {"ready": 2}
    assert await world.rows("select distinct lane, worst, held from chunk") == [(None, None, None)]
    assert await world.fund() == 0


async def test_queued_work_waits_for_money_and_goes_on_when_the_budget_is_renewed(world: World) -> None:
    await world.budget(max_cost="0.1", period="hour", soft=[50])  # 100 tokens, of which an item may use 11
    await world.submit(16)
    assert await world.states() == {"unfunded": 16}  # a tenth of the money is less than two items
    ended = 0
    while await world.states():
        while await world.fund():
            ended += await world.drain()
            await world.settle()
            budget = await world.state()
            assert budget.spent + budget.held <= budget.max
        await world.turn()
    assert ended == 16
    assert not await world.states()
    assert (await world.state()).held == 0
    assert "budget.spent" in await world.events()
    assert "budget.renewed" in await world.events()


async def test_a_hold_is_returned_and_the_exact_cost_is_spent_when_results_are_counted(world: World) -> None:
    await world.budget(max_cost="1", period="day")
    await world.submit(4)
    assert await world.fund() == 1
    assert (await world.state()).held == 44 * TOKEN
    await world.drain()
    await world.settle()
    budget = await world.state()
    assert (budget.held, budget.spent) == (0, 4 * 8 * TOKEN)  # each answer: 3 prompt and 5 answer tokens
    assert await world.recount() == []


async def test_a_budget_of_tokens_counts_tokens_whatever_the_price(world: World) -> None:
    world.line = await world.line_of("free", price=None)
    await world.budget(max_tokens=1000)
    await world.submit(4)
    await world.fund()
    assert (await world.state()).held == 44
    await world.drain()
    await world.settle()
    assert ((await world.state()).held, (await world.state()).spent) == (0, 32)


async def test_while_the_steward_is_away_only_funded_chunks_run(world: World) -> None:
    await world.budget(max_tokens=10**9)
    await world.submit(200, chunk=1)
    await world.fund()
    assert await world.drain() == 128
    assert await world.states() == {"unfunded": 72}
    assert await world.fund() == 72


async def test_a_paused_batch_returns_its_holds_and_waits_for_money_again_when_it_is_resumed(world: World) -> None:
    await world.budget(max_tokens=10**6)
    batch_id = await world.submit(8)
    await world.fund()
    async with world.database.durable() as conn:
        await conn.execute("update batch set state = 'paused' where batch_id = %s", (batch_id,))
    await world.settle()
    assert (await world.states(), (await world.state()).held) == ({"held": 2}, 0)
    async with world.database.durable() as conn:
        await conn.execute("update batch set state = 'open' where batch_id = %s", (batch_id,))
    await world.settle()
    assert await world.states() == {"unfunded": 2}
    assert await world.fund() == 2
    async with world.database.durable() as conn:
        await conn.execute("update batch set state = 'cancelling' where batch_id = %s", (batch_id,))
    await world.settle()
    assert (await world.states(), (await world.state()).held) == ({}, 0)
    assert await world.recount() == []


async def test_a_lost_workers_chunk_keeps_its_hold_and_what_finish_hands_back_needs_a_new_one(world: World) -> None:
    await world.budget(max_tokens=10**6)
    await world.submit(4)
    await world.fund()
    assert await world.claim() is not None
    async with world.database.durable() as conn:
        await conn.execute("update worker set lease_until = now() - interval '1 hour'")
        await reaping.reap(conn)
    assert await world.rows("select state, held from chunk") == [("ready", 1000)]
    world.worker = await support.make_worker(world.database, world.pool)
    lease = await world.claim()
    assert lease is not None
    async with world.database.durable() as conn:
        items = await service.load(conn, lease)
        await service.flush(conn, lease, support.answers(items[:1]))
        await service.finish(conn, lease)
    assert await world.rows("select state, n, worst_tokens, held from chunk") == [("delayed", 3, 33, None)]
    async with world.database.relaxed() as conn:
        await chunk_sweeps.promote(conn)
    await world.settle()
    assert await world.states() == {"unfunded": 1}
    assert ((await world.state()).held, (await world.state()).spent) == (0, 8)


async def test_a_price_change_does_not_change_what_queued_work_costs(world: World) -> None:
    await world.budget(max_cost="1", period="total")
    await world.submit(4)
    dearer = await world.line_of("w", Price(Decimal(9000), Decimal(9000), Decimal(9000)))
    assert dearer != world.line
    await world.fund()
    await world.drain()
    await world.settle()
    assert (await world.state()).spent == 32 * TOKEN


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


async def test_a_chunk_that_a_lowered_budget_cannot_hold_is_cut_into_its_items(world: World) -> None:
    await world.budget(max_tokens=1000, period="hour")
    await world.submit(8, chunk=8)
    await world.budget(max_tokens=40, period="hour")
    for _ in range(20):
        await world.fund()
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


async def test_a_spent_budget_refuses_new_batches_if_it_is_to(world: World) -> None:
    await world.submit(4)
    await world.drain()
    await world.settle()
    await world.budget(max_tokens=30, when_spent="refuse")
    with pytest.raises(BudgetSpent, match="Budget 'b' is used up"):
        await world.submit(1)
    await world.budget(max_tokens=30)
    await world.submit(1)
    assert await world.states() == {"unfunded": 1}


async def test_a_large_chunk_is_not_starved_by_small_ones_of_another_lane(world: World) -> None:
    await world.budget(max_tokens=1000)
    await world.budget("large", max_tokens=10**6, workflow="large")
    large = await world.line_of("large")
    await world.submit(1, most=50)
    await world.fund()
    await world.submit(1, most=800, line=large, deadline_seconds=10)
    async with world.database.durable() as conn:
        await conn.execute("update budget set held = 500 where name = 'b'")  # a hold elsewhere that will return
    for _ in range(5):
        await world.submit(1, most=50)
    assert await world.fund() == 0
    async with world.database.durable() as conn:
        await conn.execute("update budget set held = 53 where name = 'b'")
    assert await world.fund() >= 1
    assert ("large",) in await world.rows(
        "select l.workflow from chunk c join line l using (line_id) where c.state = 'ready' and l.workflow = 'large'"
    )


async def test_from_a_share_on_work_that_is_not_critical_moves_to_a_fallback_and_results_name_it(world: World) -> None:
    small = replace(MODEL, name="small", served="small", price=Price(Decimal(1), Decimal(1), Decimal(1)))
    models = Catalogue({"toy": MODEL, "small": small}, {"toy": MODEL, "small": small})
    async with world.database.transaction() as conn:
        terms = {"max_tokens": 1000, "divert_at": 80, "fallback": ["small"]}
        await verbs.put(conn, models, world.tenant, "b", terms)
        await conn.execute("update budget set spent = 850")
    batch_id = await world.submit(4)
    await funding.fund(world.database, models)
    [(model, critical)] = await world.rows(
        "select distinct l.model, l.critical from chunk c join line l using (line_id)"
    )
    assert (model, critical) == ("small", False)
    assert await world.rows("select distinct model from item_payload where batch_id = %s", batch_id) == [("small",)]
    assert await world.events() == ["budget.diverted"]
    await funding.fund(world.database, models)
    pools = await world.rows("select p.model from chunk join pool p using (pool_id) where state = 'ready'")
    assert pools == [("small",)]


async def test_eight_funders_at_once_never_hold_more_than_the_budget(world: World) -> None:
    await world.budget(max_tokens=1000)
    await world.submit(200, chunk=1)
    await asyncio.gather(*(world.fund() for _ in range(8)))
    budget = await world.state()
    assert budget.held == 11 * (await world.states())["ready"] <= 1000
    assert await world.recount() == []


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    maxima=st.lists(st.integers(40, 400), min_size=1, max_size=3),
    batches=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 30), st.integers(1, 4)), min_size=1, max_size=4),
    strict=st.booleans(),
)
def test_spent_and_held_stay_within_every_budget_and_no_chunk_waits_for_ever(
    database_url: str, maxima: Sequence[int], batches: Sequence[tuple[int, int, int]], strict: bool
) -> None:
    async def run() -> None:
        async with Database(database_url, size=2) as database:
            async with database.durable() as conn:
                await support.clear(conn)
            world = World(database)
            await world.begin()
            for number, most in enumerate(maxima):
                await world.budget(f"b{number}", max_tokens=most, period="hour", strict=strict)
            for items, most, chunk in batches:
                try:
                    await world.submit(items, most=most, chunk=chunk)
                except BadInput:
                    continue
            for _ in range(100):
                await world.fund()
                for number in range(len(maxima)):
                    budget = await world.state(f"b{number}")
                    assert budget.spent + budget.held <= budget.max
                if not await world.states():
                    break
                await world.drain()
                await world.settle()
                for number in range(len(maxima)):
                    budget = await world.state(f"b{number}")
                    overshoot = 24 * 8  # results of the fake worker may cost more than their short answers' holds
                    assert budget.spent + budget.held <= budget.max + overshoot
                await world.turn()
            assert not await world.states()
            assert {(await world.state(f"b{number}")).held for number in range(len(maxima))} == {0}
            assert await world.recount() == []

    asyncio.run(run())


async def test_what_is_overspent_is_at_most_the_bound_that_the_metric_shows(world: World) -> None:
    await world.budget(max_tokens=400, period="hour")
    await world.submit(60)
    async with world.database.durable() as conn:  # the results of the last day have used a tenth of the worst
        await conn.execute("update lane set tokens = 10000, worst_tokens = 100000")
    assert await world.fund() == 20
    budget = await world.state()
    assert budget.held == 20 * 5  # 125 per mille of three items of 11, rounded up
    async with world.database.relaxed() as conn:
        await conn.execute("update chunk set worst = worst_tokens")  # the bound is of money
        gauges = {name: value for name, _, value in await queue_funding.gauges(conn)}
    bound = gauges["budget_overshoot_bound"]
    assert bound == 20 * (33 - 5)
    await world.drain()
    await world.settle()
    budget = await world.state()
    assert budget.max < budget.spent == 480 <= budget.max + bound
    assert budget.held == 0
    await world.submit(1)
    assert await world.fund() == 0


async def test_a_round_reads_few_pages_however_much_waits(world: World) -> None:
    await world.budget(max_tokens=1000)
    await world.submit(1)
    columns = (
        "batch_id, run, tenant_id, pool_id, lo, hi, n, est_tokens, deadline, state, line_id, lane, worst, worst_tokens"
    )
    async with world.database.durable() as conn:
        copies = f"insert into chunk ({columns}) select {columns} from chunk, generate_series(1, 20000)"
        await conn.execute(copies.encode())
        await conn.execute("vacuum analyze chunk")
    where = {"lane": 1, "pool_id": world.pool, "strict": False, "per_mille": 1000, "places": 128}
    terms = {"free_cost": 0, "free_tokens": 0, "largest_cost": None, "largest_tokens": 900}
    pages = {}
    async with world.database.durable() as conn:
        for name, query in (("waiting", funding_sql.WAITING), ("fund", funding_sql.FUND), ("first", funding_sql.FIRST)):
            explained = await conn.execute(f"explain (analyze, buffers, format json) {query}".encode(), where | terms)
            [(plan,)] = await explained.fetchall()
            pages[name] = plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"]
    note(f"pages of a round in which 20,000 chunks wait for money: {pages}")
    assert pages["waiting"] <= 20
    assert pages["fund"] <= 300  # it locks 128 chunks
    assert pages["first"] <= 10


def test_an_answer_without_a_limit_is_held_at_three_times_its_usual_length() -> None:
    assert item_worsts.likely_answer(100, 8000) == 300
    assert item_worsts.likely_answer(100, 250) == 250
    assert item_worsts.likely_answer(100, 100) == 100
