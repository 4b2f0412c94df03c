"""Claims about synchronous requests under budgets: no process spends money that it does not have, and none waits long."""

import asyncio
import sys
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.pq import TransactionStatus

from app.admission.spent_shares import ReadShares
from app.budgets import calls, sql
from app.budgets import service as budgets
from app.budgets.calls import CallBudgets, CallSize, Changed, Report
from app.budgets.queued import Steward
from app.budgets.rules import Budget, Reserve, Scope, Unit
from app.db.pool import Connection, Database
from app.engines.catalogue import Price
from app.errors import BudgetSpent
from app.metering.lines import SYNC, LineParts, parts_of
from app.metering.spend_labels import SpendLabels
from app.settings import Settings
from tests.budgets.world import ENDED, PRICE, TOKEN, World
from tests.queue import support
from tests.sets import examples

SIZE = CallSize(4, 6, 16, {})
LONG = {"p": "x" * 992}  # of 1,000 bytes
DEAR_PROMPTS = replace(PRICE, input=2 * PRICE.input)
PRICES = {"USD": PRICE, "EUR": replace(PRICE, currency="EUR"), None: None}


def line(world: World, workflow: str = "w") -> LineParts:
    return parts_of(world.tenant, "key", SpendLabels(workflow), "toy", SYNC, PRICE)


async def call(ours: CallBudgets, of: LineParts, size: CallSize = SIZE) -> None:
    async with ours.reserving(of, size) as call_now:
        call_now.settle(size.prompt, 0, size.expected)


async def write(world: World, report: Report) -> Changed | None:
    return await calls.write(world.database, report)


async def test_processes_racing_for_a_budget_never_spend_more_and_leave_little(world: World) -> None:
    await world.budget(max_tokens=20_000)
    command = [sys.executable, "-m", "tests.budgets.spender", world.database.url, str(world.tenant)]
    racing = [await asyncio.create_subprocess_exec(*command, stdout=-1) for _ in range(examples(3, 8))]
    outputs = [(await process.communicate())[0] for process in racing]
    calls = sum(int(output) for output in outputs)
    budget = await world.state()
    assert budget.spent == calls * 10 <= 20_000
    assert budget.spent >= 19_000
    assert budget.reserved == 0  # each process gave back what was left
    assert await world.recount() == []


async def test_a_spent_budget_refuses_within_a_moment_and_the_message_names_the_budget(world: World) -> None:
    await world.budget(max_tokens=15)
    ours = CallBudgets(world.database)
    async with ours.keeping():
        await call(ours, line(world))
        began = time.monotonic()
        with pytest.raises(BudgetSpent, match="too little left: 10 of 15 tokens spent, and this may use 10 tokens; it"):
            await call(ours, line(world))
        assert time.monotonic() - began > 0.2


async def test_a_call_takes_from_each_budget_that_applies_in_its_unit(world: World) -> None:
    await world.budget("money", max_cost="5")
    await world.budget("mine", max_tokens=1000, workflow="w")
    await world.budget("other", max_tokens=1000, workflow="v")
    ours = CallBudgets(world.database)
    async with ours.keeping():
        await call(ours, line(world))
    found = {name: (await world.state(name)).spent for name in ("money", "mine", "other")}
    assert found == {"money": 10 * TOKEN, "mine": 10, "other": 0}


async def test_a_budget_may_reserve_the_longest_answer(world: World) -> None:
    await world.budget(max_tokens=15, reserve="maximum")
    ours = CallBudgets(world.database)
    async with ours.keeping():
        with pytest.raises(BudgetSpent):
            await call(ours, line(world))


@pytest.mark.parametrize(
    ("size", "price", "tokens", "cost"),
    [
        (CallSize(4, 6, 16, LONG), PRICE, 1016, 1016),
        (CallSize(4, 6, 16, LONG, window=100), PRICE, 100, 100),
        (CallSize(4, 6, 16, LONG, window=100), DEAR_PROMPTS, 100, 200),
        (CallSize(4, 6, 16, {}, window=100), PRICE, 20, 20),
        (CallSize(4, 6, 100, LONG, window=100), PRICE, 104, 104),  # as long as its prompt is estimated
        (CallSize(4, 24, 64, LONG, window=100, answers=4), PRICE, 84 + 64, 84 + 64),
        (CallSize(4, 24, 64, LONG, window=100, answers=4), DEAR_PROMPTS, 84 + 64, 84 * 2 + 64),
    ],
)
async def test_the_maximum_that_a_call_reserves_is_within_the_context_window(
    world: World, size: CallSize, price: Price, tokens: int, cost: int
) -> None:
    await world.budget("tokens", max_tokens=10**6, reserve="maximum")
    await world.budget("money", max_cost="1000", reserve="maximum")
    ours = CallBudgets(world.database)
    of = parts_of(world.tenant, "key", SpendLabels("w"), "toy", SYNC, price)
    async with ours.keeping(), ours.reserving(of, size) as reserved:
        found = {part.budget.name: amount for part, amount, _ in reserved.amounts}
    assert found == {"tokens": tokens, "money": cost * TOKEN}


async def test_without_the_database_calls_go_on_unless_a_budget_reserves_the_maximum(world: World) -> None:
    await world.budget(max_tokens=50)
    away = Database("postgresql://nobody@127.0.0.1:1/none", size=1, patience_seconds=0.1)
    ours = CallBudgets(world.database)
    await ours.refresh()
    ours._database = away
    with suppress(psycopg.Error):
        await away.open()
    for _ in range(3):
        await call(ours, line(world))
    for part in ours._parts.values():
        part.budget = replace(part.budget, reserve=Reserve.MAXIMUM)
    with pytest.raises(BudgetSpent, match="reserves the maximum, and the database") as refused:
        await call(ours, line(world), CallSize(1, 1, 1, {}))
    assert (refused.value.again, refused.value.retry_after) == (True, 3)
    ours._database = world.database
    for part in ours._parts.values():
        await ours._report(part)  # the one of which it is not known whether it was stored
        await ours._report(part)
    assert (await world.state()).spent == 30
    await away.close()


async def test_what_a_dead_process_had_reserved_returns_after_a_minute(world: World) -> None:
    await world.budget(max_tokens=10_000)
    ours = CallBudgets(world.database)
    await ours.refresh()
    await call(ours, line(world))
    assert (await world.state()).reserved > 0
    async with world.database.durable() as conn:
        await conn.execute("update reservation set seen_at = now() - interval '61 seconds'")
    await world.recount()
    assert (await world.state()).reserved == 0
    await call(ours, line(world))  # it lives after all, and reserves anew
    for part in ours._parts.values():
        await ours._report(part)
    assert (await world.state()).spent == 20
    assert await world.recount() == []


async def test_a_report_whose_commit_had_an_unknown_outcome_is_stored_once(world: World) -> None:
    budget = await world.budget(max_tokens=1000)
    for _ in range(2):
        changed = await write(world, Report(budget.budget_id, "p", 1, 70, 20, 5, budget.counts))
        assert changed is not None
        assert changed.amount == 25
    assert ((await world.state()).spent, (await world.state()).reserved) == (70, 25)


async def test_a_report_is_not_spent_again_after_its_process_was_taken_for_dead(world: World) -> None:
    budget = await world.budget(max_tokens=1000)
    report = Report(budget.budget_id, "p", 1, 70, 20, 5, budget.counts)
    await write(world, report)
    async with world.database.transaction() as conn:
        await conn.execute("update reservation set seen_at = now() - interval '61 seconds'")
    await world.recount()
    assert ((await world.state()).spent, (await world.state()).reserved) == (70, 0)
    assert await write(world, report) == Changed(0, None)  # it lives, and does not know that the report was stored
    assert ((await world.state()).spent, (await world.state()).reserved) == (70, 0)
    changed = await write(world, replace(report, number=2, used=1))
    assert changed is not None
    assert changed.amount == 25
    async with world.database.transaction() as conn:
        await conn.execute("update reservation set seen_at = now() - interval '6 days'")
    await world.recount()
    assert await world.rows("select amount, number from reservation") == [(0, 2)]
    async with world.database.durable() as conn:
        await conn.execute("update reservation set seen_at = now() - interval '8 days'")
    await world.recount()
    assert await world.rows("select amount, number from reservation") == []
    assert ((await world.state()).spent, (await world.state()).reserved) == (71, 0)


async def test_a_process_follows_a_budget_to_another_unit_and_reports_no_tokens_as_money(world: World) -> None:
    await world.budget(max_tokens=1000)
    ours = CallBudgets(world.database)
    await ours.refresh()
    await call(ours, line(world))
    async with ours.reserving(line(world), SIZE) as open_call:
        assert (await world.budget(max_cost="1")).reserved == 0
        await call(ours, line(world))  # before the process knows
        await ours.refresh()
        assert (await world.state()).spent == 0
        open_call.settle(SIZE.prompt, 0, SIZE.expected)
    await call(ours, line(world))
    for part in ours._parts.values():
        await ours._report(part)
        assert part.open == 0
    assert (await world.state()).spent == 20 * TOKEN  # of the call that was open, and of the one after it
    assert await world.recount() == []


async def test_a_call_under_a_budget_that_was_just_removed_is_not_refused(world: World) -> None:
    await world.budget(max_tokens=20)
    ours = CallBudgets(world.database)
    await ours.refresh()
    await call(ours, line(world))
    async with world.database.transaction() as conn:
        await budgets.remove(conn, world.tenant, "b")
    for _ in range(3):
        await call(ours, line(world))


async def test_reaching_a_threshold_writes_its_event_once(world: World) -> None:
    await world.budget(max_tokens=100, alerts_at=[30, 60])
    ours = CallBudgets(world.database)
    await ours.refresh()
    for _ in range(10):
        await call(ours, line(world))
        for part in ours._parts.values():
            await ours._report(part)
        await budgets.note(world.database)
    assert await world.events() == ["budget.alert", "budget.alert", "budget.spent"]


async def test_a_call_that_a_budget_does_not_count_is_never_refused_by_it(world: World) -> None:
    await world.budget(max_cost="0.2 USD")
    euros = replace(line(world), currency="EUR")
    unpriced = replace(line(world), price_in=None, price_cached=None, price_out=None, currency=None)
    ours = CallBudgets(world.database)
    await ours.refresh()
    async with ours.reserving(line(world), CallSize(50, 50, 100, {})) as one, ours.reserving(line(world), SIZE):
        one.settle(50, 0, 180)  # it has used more than was reserved for it
        for part in ours._parts.values():
            await ours._report(part)
            assert part.free < 0
        await call(ours, euros)
        await call(ours, unpriced)


async def test_a_call_turns_a_window_that_is_over_without_a_steward(world: World) -> None:
    await world.budget(max_tokens=10, period="hour")
    ours = CallBudgets(world.database)
    async with ours.keeping():
        await call(ours, line(world))
        for part in ours._parts.values():
            await ours._report(part)
        await budgets.note(world.database)
        async with world.database.durable() as conn:
            await conn.execute(ENDED)
        await call(ours, line(world))
    await budgets.note(world.database)
    assert await world.events() == ["budget.spent", "budget.renewed", "budget.spent"]


async def test_a_window_that_nobody_can_turn_now_does_not_hold_up_a_report(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = await world.budget(max_tokens=100, period="hour")
    async with world.database.durable() as conn:
        await conn.execute(ENDED)
    asked = []

    async def locked(database: Database) -> bool:
        asked.append(database)
        assert len(asked) < 3, "it asks again and again"
        return True

    monkeypatch.setattr(budgets, "turn", locked)
    assert await write(world, Report(budget.budget_id, "p", 1, 7, 20, 5, budget.counts)) is not None
    assert ((await world.state()).spent, len(asked)) == (7, 1)


async def test_a_spent_budget_is_not_asked_again_for_a_second(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.budget(max_tokens=15)
    store, stored = calls.write, list[int]()

    async def counted(database: Database, report: Report) -> Changed | None:
        stored.append(report.number)
        return await store(database, report)

    monkeypatch.setattr(calls, "write", counted)
    ours = CallBudgets(world.database)
    await ours.refresh()
    await call(ours, line(world))
    with pytest.raises(BudgetSpent):
        await call(ours, line(world))
    asked = len(stored)
    for _ in range(100):
        with pytest.raises(BudgetSpent):
            await call(ours, line(world))
    assert len(stored) == asked
    await call(ours, line(world), CallSize(1, 1, 1, {}))  # for which there is enough


async def test_a_call_without_a_budget_asks_nothing_of_the_database(world: World) -> None:
    class Unasked:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"it asks: {name}")

    ours = CallBudgets(cast(Database, Unasked()))
    for _ in range(100):
        await call(ours, line(world))


@given(
    most=st.integers(10, 1000),
    spent=st.integers(0, 1000),
    others=st.integers(0, 300),
    before=st.integers(0, 300),
    used=st.integers(0, 300),
    needed=st.integers(0, 300),
    wanted=st.integers(0, 300),
)
def test_a_process_never_reserves_more_than_is_free(
    most: int, spent: int, others: int, before: int, used: int, needed: int, wanted: int
) -> None:
    budget = Budget(
        "b", Scope.ACCOUNT, "", Unit.TOKENS, None, "total", "UTC", most, spent=spent, reserved=others + before
    )
    report = Report(1, "p", 1, used, needed, wanted, budget.counts)
    amount = calls.new_amount(budget, report, before, before + others)
    left = max(0, before - used)
    assert amount <= max(left, 0) or spent + used + others + amount <= most
    assert amount >= min(left, needed)


async def test_the_share_in_the_metric_is_the_one_that_a_policy_compares_and_what_is_reserved_is_another(
    world: World,
) -> None:
    await world.budget(max_tokens=1000)
    async with world.database.durable() as conn:
        await conn.execute("update budget set spent = 500, reserved = 400")
        found = {name: value for name, _, value in await budgets.gauges(conn)}
    ours = CallBudgets(world.database)
    await ours.refresh()
    assert ours.used(world.tenant, "key", "w", False, None) == 100 * found["budget_spent_ratio"] == 50
    assert found["budget_reserved_ratio"] == 0.4


async def test_a_condition_on_budget_compares_the_same_of_work_that_arrives_and_of_work_that_waits(
    world: World,
) -> None:
    await world.budget("dollars", max_cost="10 USD")
    await world.budget("euros", max_cost="10 EUR")
    await world.budget("calls", max_tokens=1000, on_limit={"queued": "alert"})
    await world.budget("batches", max_tokens=1000, on_limit={"synchronous": "alert"})
    async with world.database.durable() as conn:
        for name, share in {"dollars": 505, "euros": 950, "calls": 800, "batches": 705}.items():
            await conn.execute("update budget set spent = max / 1000 * %s where name = %s", (share, name))
    lines = {currency: await world.line_of("w", price) for currency, price in PRICES.items()}
    async with world.database.relaxed() as conn:
        rows = await (await conn.execute(sql.SPENT_SHARES, {"line_ids": list(lines.values())})).fetchall()
    waiting = {line_id: share for line_id, share, _ in rows}
    ours, theirs = CallBudgets(world.database), ReadShares(world.database)
    await ours.refresh()
    await theirs.fresh()
    for used in (ours.used, theirs.used):
        arriving = {currency: used(world.tenant, "key", "w", True, currency) for currency in lines}
        assert arriving == {currency: waiting[line_id] for currency, line_id in lines.items()}
        assert arriving == {"USD": 70.5, "EUR": 95, None: 70.5}
        assert used(world.tenant, "key", "w", False, "USD") == 80


async def test_a_report_locks_no_budget_before_its_last_message(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = await world.budget(max_tokens=1000)
    report = Report(budget.budget_id, "p", 1, 70, 20, 5, budget.counts)
    store, seen = calls._store, []

    async def stopping(conn: Connection, *values: Any) -> Budget | None:
        """A process that stops before it stores: others go on, and what they change is not overwritten."""
        if not seen:
            async with world.database.durable() as other:
                await other.execute("select from budget for update nowait")
                await other.execute("update budget set spent = spent + 5")
        seen.append(conn.info.transaction_status)
        return await store(conn, *values)

    monkeypatch.setattr(calls, "_store", stopping)
    changed = await write(world, report)
    assert changed is not None
    assert ((await world.state()).spent, (await world.state()).reserved) == (75, 25)
    assert seen == [TransactionStatus.IDLE] * 2  # each was a transaction by itself


async def test_a_report_pauses_before_it_is_planned_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = await world.budget(max_tokens=1000)
    store, changes, pauses = calls._store, ["once", "again"], list[float]()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async def changed(conn: Connection, *values: Any) -> Changed | None:
        return None if changes and changes.pop() else await store(conn, *values)

    monkeypatch.setattr(calls, "_store", changed)
    monkeypatch.setattr(calls._stored.retry, "sleep", pause)  # type: ignore[attr-defined]
    assert await write(world, Report(budget.budget_id, "p", 1, 70, 20, 5, budget.counts)) is not None
    assert len(pauses) == 2
    assert all(0 < seconds <= 0.1 for seconds in pauses)


async def test_a_locked_budget_does_not_hold_up_the_steward_nor_other_budgets(world: World, settings: Settings) -> None:
    first = await world.budget("a", max_tokens=1000)
    second = await world.budget("b", max_tokens=1000)
    for budget in (first, second):
        await write(world, Report(budget.budget_id, "gone", 1, 0, 20, 5, budget.counts))
    async with world.database.durable() as conn:
        await conn.execute("update reservation set seen_at = now() - interval '61 seconds'")
    steward = Steward(world.database, settings)
    async with await psycopg.AsyncConnection.connect(world.database.url) as stopped:
        await stopped.execute("set idle_in_transaction_session_timeout = 0")
        await stopped.commit()
        await stopped.execute("select from budget where budget_id = %s for update", (first.budget_id,))
        running = asyncio.create_task(steward.run())
        await support.until_waiting_or(world.database, running)
        assert running.done()
        assert ((await world.state("a")).reserved, (await world.state("b")).reserved) == (25, 0)
        await stopped.rollback()
    await running
    await world.recount()
    assert (await world.state("a")).reserved == 0


async def test_a_call_waits_on_while_each_report_takes_more_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.budget(max_tokens=1000)
    stored, most = calls.write, 0

    async def little(database: Database, report: Report) -> Changed | None:
        nonlocal most
        most = min(report.needed, most + 2)
        await asyncio.sleep(0.1)
        return await stored(database, replace(report, needed=most))

    monkeypatch.setattr(calls, "write", little)
    ours = CallBudgets(world.database)
    async with ours.keeping():
        await call(ours, line(world))  # of ten tokens
    assert (await world.state()).spent == 10
