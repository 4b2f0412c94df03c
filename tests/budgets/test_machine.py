"""Claims about budgets under any order of what can happen to their work: money ends and comes, calls take it back, budgets
change, work is diverted, engines come and go, workers and processes are lost, batches are paused, cancelled and retried."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from math import inf
from typing import Any
from unittest import mock

from hypothesis import Phase, given
from hypothesis import strategies as st

from app.batches import lifecycle
from app.batches.lifecycle import Verb
from app.budgets import calls, queued
from app.budgets import service as budgets
from app.budgets.calls import CallBudgets, CallSize, Report
from app.budgets.rules import Budget, Queued, Synchronous
from app.db.pool import Database
from app.db.pooled_connection import _Cursor
from app.engines.catalogue import Catalogue, Price
from app.errors import BadInput, BudgetSpent, Conflict, NotFound
from app.metering.lines import SYNC, parts_of
from app.metering.report_sql import CHECK
from app.metering.spend_labels import SpendLabels
from app.queue import chunk_sweeps, reaping, service
from app.queue.types import Lease
from app.settings import Settings
from app.states import CHUNK
from app.tenants.service import Tenant
from tests.budgets.world import ENDED, MODEL, TOY, World
from tests.queue import support
from tests.sets import drawn

SMALL = replace(MODEL, name="small", served="small", price=Price(Decimal(1), Decimal(1), Decimal(1)))
MODELS = Catalogue({"toy": MODEL, "small": SMALL}, {"toy": MODEL, "small": SMALL})
WORKFLOWS = ("w", "v")
EUROS = Price(Decimal(1000), Decimal(1000), Decimal(1000), "EUR")
MOST_ROUNDS = 80  # in which everything has to end once money comes
_FINAL = "('completed', 'failed', 'cancelled', 'expired')"

_WATCH = """
drop table if exists changed_chunk;
create table changed_chunk (before text, after text, money text);
create or replace function note_change() returns trigger language plpgsql as $$ declare money text := 'keep'; begin
  if TG_OP = 'DELETE' then
    insert into changed_chunk values (old.state, 'gone', case when old.reserved_tokens is null then 'keep' else 'return' end);
    return null;
  end if;
  if old.reserved_tokens is null and new.reserved_tokens is not null then
    money := 'reserve';
  elsif old.reserved_tokens is not null and new.reserved_tokens is null then
    money := case when exists (select from batch_delta d where d.batch_id = old.batch_id and d.budgets is not null
      and d.reserved_tokens > 0 and d.xmin = pg_current_xact_id()::xid) then 'return' else 'take back' end;
  end if;
  if old.state <> new.state or money <> 'keep' then
    insert into changed_chunk values (old.state, new.state, money);
  end if;
  return null;
end $$;
drop trigger if exists change on chunk;
create trigger change after update or delete on chunk for each row execute function note_change()"""


def _changes(money: str, verbs: Collection[str]) -> set[tuple[str, str, str]]:
    """What these verbs do to the state of a chunk, and to what is reserved for it."""
    found = (each for each in CHUNK.transitions if each.verb in verbs)
    return {(source, each.target, money) for each in found for source in each.sources}


# A reservation ends with a delta that returns it, unless it is taken back.
CHANGES = (
    _changes("keep", [each.verb for each in CHUNK.transitions])
    | _changes("reserve", ["reserve"])
    | _changes("take back", ["take back"])
    | _changes("return", ["move", "free", "hold", "remove", "finish"])
)
_BOOKED = """
select coalesce(sum(u.prompt + u.output), 0)::int8 from usage u join line l using (line_id) where l.workflow = any(%s)"""


class Killed(Exception):
    """Nothing of the process goes on."""


class Machine(World):
    """The account, with a second model, and a budget whose money ends. `step` does what a drawn number says."""

    def __init__(self, database: Database, url: str) -> None:
        super().__init__(database)
        self._settings = Settings(database_url=url, chunk_items=4)
        self._lines: list[int] = []
        self._workers: dict[int, int] = {}
        self._spent_before = 0  # in the windows that have ended
        self._most = 0
        self._called = 0  # tokens of calls
        self._allowed: dict[str, float] = {}
        self._reserves_at = 1  # in `steps`
        self.steps: tuple[Callable[[int], Awaitable[None]], ...] = (
            self._submit,
            self._reserve,
            self._run,
            self._round,
            self._lose,
            self._settle,
            self._turn,
            self._raise,
            self._second,
            self._move,
            self._halt,
            self._retry,
            self._learn,
            self._call,
            self._engines,
            self._die,
            self._kill,
        )

    async def watch(self) -> None:
        """Note from now on each change of a chunk's state, and of what is reserved for it."""
        async with self.database.durable() as conn:
            await conn.execute(_WATCH.encode())

    async def prepare(self, most: int, *, reserve: str, diverts: bool, on_limit: Mapping[str, str]) -> None:
        """Begin with a tight budget of so many tokens, and one in each currency."""
        await self.watch()
        await self.begin()
        self._lines = [self.line, await self.line_of("v", EUROS)]
        self._most = most
        self._terms = {"period": "month", "reserve": reserve, "on_limit": on_limit}
        if diverts:
            await self.moves(MODELS, ["small"], at=40)
        await self._put(most)
        for name, cost in (("euros", f"{most / 1000} EUR"), ("dollars", f"{most * 1.5 / 1000} USD")):
            await self.budget(name, max_cost=cost, period="month", reserve=reserve)

    async def _put(self, most: int) -> None:
        async with self.database.transaction() as conn:
            await budgets.put(conn, self.tenant, "tight", {**self._terms, "max_tokens": most})

    # ------------------------------------------------------------ steps

    async def step(self, what: int, n: int) -> None:
        """Do something, and check that what is spent and reserved is within the bound, and is what the rows say."""
        await self.steps[what % len(self.steps)](n)
        for budget in await self._all():
            if budget.queued == Queued.ALERT or budget.synchronous == Synchronous.ALERT:
                continue  # it has no bound
            allowed = self._allowed[budget.name] = max(self._allowed.get(budget.name, 0), budget.max)
            assert budget.spent + budget.reserved <= allowed
        assert await self.recount() == []

    async def _all(self) -> list[Budget]:
        async with self.database.relaxed() as conn:
            return await budgets.listing(conn, self.tenant)

    async def _reserving(self, work: Awaitable[object]) -> None:
        """Do what may reserve money, and check that it was there. From then on each budget is within the bound that its metric
        says.
        """
        before = {budget.name: budget.reserved for budget in await self._all()}
        await work
        async with self.database.relaxed() as conn:
            gauges = await budgets.gauges(conn)
        bounds = {of.partition("/")[2]: value for name, of, value in gauges if name == "budget_overshoot_bound"}
        for budget in await self._all():
            if budget.reserved > before.get(budget.name, 0):
                assert budget.spent + budget.reserved <= budget.max
                self._allowed[budget.name] = budget.max + bounds.get(budget.name, inf)

    async def _submit(self, n: int) -> None:
        with suppress(BadInput):
            await self.submit(1 + n % 7, most=5 + n % 11, chunk=1 + n % 4, line=self._lines[n % 2])

    async def _reserve(self, _: int) -> None:
        await self._reserving(queued.reserve(self.database, MODELS))

    async def _call(self, n: int) -> None:
        """A call is refused only where less is available than it needs."""
        line, size = parts_of(self.tenant, "key", SpendLabels("calls"), "toy", SYNC, None), 1 + n % 30

        async def call() -> None:
            ours = CallBudgets(self.database)
            async with ours.keeping():
                try:
                    async with ours.reserving(line, CallSize(size, 0, 0, {})) as reserved:
                        reserved.settle(size, 0, 0)
                        self._called += size
                except BudgetSpent:
                    assert (await self.state("tight")).available < size

        await self._reserving(call())

    async def _engines(self, n: int) -> None:
        """Engines are drained or come back."""
        async with self.database.durable() as conn:
            other = "case intake when 'open' then 'draining' else 'open' end"
            await conn.execute(f"update engine set intake = {other} where engine_id %% 2 = %s".encode(), (n % 2,))

    async def _die(self, n: int) -> None:
        """A process reserves something for a call, and dies; some time later that is noticed."""
        tight = await self.state("tight")
        report = Report(tight.budget_id, f"p{n % 3}", 1 + n, 0, 1 + n % 20, 0, tight.counts)
        await self._reserving(calls.write(self.database, report))
        if n % 2:
            await self._bury()

    async def _kill(self, n: int) -> None:
        """The steward is killed after some statements of what it does."""
        left, execute = n // 3 % 12, _Cursor.execute

        async def counted(*values: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return await execute(*values, **more)

        async def killed() -> None:
            with mock.patch.object(_Cursor, "execute", counted), suppress(Killed):
                await works[n % 3]()

        works: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: queued.reserve(self.database, MODELS),
            self.settle,
            lambda: self._move(n),
        )
        await self._reserving(killed())

    async def _bury(self) -> None:
        async with self.database.durable() as conn:
            await conn.execute("update reservation set seen_at = now() - interval '2 minutes'")
        await self.recount()

    async def _run(self, n: int) -> None:
        """Run a chunk. Of some chunks every result is an error, and some come back with a part of their items."""
        for lease in await self._claim():
            async with self.database.durable() as conn:
                items = await service.load(conn, lease)
                done = items[: max(1, len(items) // 2)] if n % 3 == 1 else items
                await service.flush(conn, lease, support.answers(done, ok=n % 3 != 2))
                await service.finish(conn, lease)

    async def _round(self, n: int) -> None:
        """What the steward and the workers do all the time, twice."""
        for part in (n, n + 1):
            await self._reserve(part)
            await self._run(part)
            await self._settle(part)

    async def _lose(self, _: int) -> None:
        """A worker is lost with a chunk of which it has stored a part."""
        for lease in await self._claim():
            async with self.database.durable() as conn:
                items = await service.load(conn, lease)
                await service.flush(conn, lease, support.answers(items[:1]))
        async with self.database.durable() as conn:
            await conn.execute("update worker set lease_until = now() - interval '1 hour'")
            await reaping.reap(conn)
        self._workers.clear()

    async def _claim(self) -> list[Lease]:
        """A chunk of each pool that has one."""
        leases = []
        for (pool_id,) in await self.rows("select pool_id from pool order by 1"):
            assert isinstance(pool_id, int)
            if pool_id not in self._workers:
                self._workers[pool_id] = await self.serve(pool_id)
            async with self.database.relaxed() as conn:
                leases.append(await support.claim(conn, pool_id, self._workers[pool_id]))
        return [lease for lease in leases if lease is not None]

    async def _settle(self, _: int) -> None:
        async with self.database.relaxed() as conn:
            await conn.execute("update chunk set not_before = now() where not_before is not null")
            await chunk_sweeps.promote(conn)
        await self.settle()

    async def _turn(self, _: int) -> None:
        before = await self.state("tight")
        async with self.database.durable() as conn:
            await conn.execute(f"{ENDED} where name <> 'second'")
        await budgets.turn(self.database)
        self._spent_before += before.spent

    async def _raise(self, n: int) -> None:
        self._most += n
        await self._put(self._most)

    async def _second(self, n: int) -> None:
        """Add a second budget, make it another workflow's, or remove it."""
        if n % 3 == 2:
            async with self.database.transaction() as conn:
                with suppress(NotFound):
                    await budgets.remove(conn, self.tenant, "second")
        else:
            await self.budget("second", max_tokens=10**6, period="total", workflow=WORKFLOWS[n % 3])

    async def _move(self, _: int) -> None:
        await queued.move(self.database, TOY, self.tenant)

    async def _halt(self, n: int) -> None:
        found = await self.rows("select request_id from batch where finalized_at is null order by batch_id")
        verbs_of: tuple[Verb, ...] = ("pause", "resume", "pause", "resume", "cancel")
        with suppress(Conflict):
            if found:
                tenant, request_id = Tenant(self.tenant, "acme"), found[n % len(found)][0]
                await lifecycle.change_state(self.database, tenant, request_id, verbs_of[n % 5])  # type: ignore[arg-type]

    async def _retry(self, n: int) -> None:
        found = await self.rows("select request_id from batch where finalized_at is not null order by batch_id")
        with suppress(Conflict):
            if found:
                tenant, request_id = Tenant(self.tenant, "acme"), found[n % len(found)][0]
                await lifecycle.retry(self.database, self._settings, MODELS, tenant, request_id)  # type: ignore[arg-type]

    async def _learn(self, n: int) -> None:
        """Let earlier results have used a share of the most, so that less is reserved."""
        async with self.database.durable() as conn:
            share = 0.1 + n % 9 / 10
            await conn.execute(
                "update budget set learned_used = 20000 * %s, learned_maximum = 20000, learned_tokens = 20000", (share,)
            )

    # ------------------------------------------------------------ the end

    async def finish(self) -> None:
        """Resume what is paused, and let a new window or a raise come whenever nothing more can run."""
        async with self.database.durable() as conn:
            await conn.execute("update batch set state = 'open' where state = 'paused'")
            await conn.execute("update engine set intake = 'open'")
        await self._bury()
        for number in range(MOST_ROUNDS):
            await self._settle(0)
            await self._move(0)
            await self.step(self._reserves_at, 0)
            await self._run(0)
            await self._settle(0)
            if not await self.states():
                return
            if (await self.states()).keys() == {"unreserved"}:
                await (self._raise(20) if number % 4 == 3 else self._turn(0))
        raise AssertionError(f"still waiting: {await self.states()}, {await self.state('tight')}")

    async def retry_all(self) -> None:
        """Retry every batch with items that have no answer."""
        for n in range(len(await self.rows("select from batch"))):
            await self._retry(n)

    async def judge(self) -> None:
        """Nothing is reserved, every budget has spent what was booked, and the ledger has what the results have."""
        assert await self.rows(f"select state from batch where state not in {_FINAL}") == []
        assert await self.recount() == []
        assert await self.rows("select name, reserved from budget where reserved <> 0") == []
        [(results,)] = await self.rows(
            "select coalesce(sum(prompt_tokens + completion_tokens), 0)::int8 from item_result"
        )
        assert await self.rows(_BOOKED, list(WORKFLOWS)) == [(results,)]
        assert await self.rows(CHECK) == []
        assert set(await self.rows("select distinct before, after, money from changed_chunk")) <= CHANGES
        tight = await self.state("tight")
        assert self._spent_before + tight.spent == results + self._called
        for workflow, spent in await self.rows("select scope_value, spent from budget where name = 'second'"):
            assert await self.rows(_BOOKED, [workflow]) == [(spent,)]
        async with self.database.relaxed() as conn:
            assert all(row == (0, 0) for row in await support.caches(conn))


Steps = Sequence[tuple[int, int]]
# Results have used little, three batches come, and in a round a chunk fails. So results cost more than is reserved for them.
BEGIN: Steps = ((12, 0), (0, 6), (0, 13), (0, 27), (3, 2))


@drawn(3, 30, phases=[Phase.generate])
@given(
    most=st.integers(60, 200),
    reserve=st.sampled_from(("expected", "maximum")),
    diverts=st.booleans(),
    queued_work=st.sampled_from(Queued),
    calls_at=st.sampled_from(Synchronous),
    steps=st.lists(st.tuples(st.integers(0, 16), st.integers(0, 200)), min_size=5, max_size=25),
)
def test_in_any_order_of_events_no_budget_exceeds_its_bound_and_all_ends_with_the_exact_sums(
    database_url: str, most: int, reserve: str, diverts: bool, queued_work: str, calls_at: str, steps: Steps
) -> None:
    async def run() -> None:
        async with Database(database_url, size=2) as database:
            async with database.durable() as conn:
                await support.clear(conn)
            machine = Machine(database, database_url)
            on_limit = {"queued": queued_work, "synchronous": calls_at}
            await machine.prepare(most, reserve=reserve, diverts=diverts, on_limit=on_limit)
            for what, n in [*BEGIN, *steps]:
                await machine.step(what, n)
            for _ in range(2):
                await machine.finish()
                await machine.judge()
                await machine.retry_all()
            await machine.finish()
            await machine.judge()

    with mock.patch.object(calls, "PATIENCE_SECONDS", 0.0):
        asyncio.run(run())
