"""A claim starts at its account's mark. No ready chunk is ever before it, so each claim takes what one without a mark would."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.budgets import queued, sql
from app.db.pool import Connection, Database
from app.db.pooled_connection import PooledConnection
from app.queue import batch_state, chunk_sweeps, fair_order_sql, order_drift, reaping, service
from app.queue.ingest import NewBatch
from app.queue.types import Lease
from testing.waiting import in_time
from tests import timing
from tests.budgets.world import MODELS
from tests.databases import Ring
from tests.queue import support
from tests.queue.plans import PATIENT, Backlog, explain
from tests.sets import drawn

pytestmark = pytest.mark.holds_accounts  # claims that roll back

MARKED = "select count(*) from sched where first_deadline > '-infinity'"
FIRST = "select chunk_id from chunk where state = 'ready' order by deadline, chunk_id limit %s"
BEFORE = """select count(*) from chunk c join sched s using (pool_id, tenant_id)
where c.state = 'ready' and (c.deadline, c.chunk_id) < (s.first_deadline, s.first_chunk)"""
CLAIMED = 50_000  # chunks
FLOOD = """
insert into chunk (batch_id, run, tenant_id, pool_id, lo, hi, n, est_tokens, deadline)
select %s, 1, 1, 2, g * 64, g * 64 + 63, 64, 6400, now() from generate_series(1, %s) g"""
RUN = """
update chunk set state = 'leased', token = token + 1, worker_id = %s where chunk_id in (
  select chunk_id from chunk where state = 'ready' and pool_id = 2 order by deadline, chunk_id limit %s)"""

PICK = st.integers(0, 99)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(0, 20)),
        st.tuples(st.just("claim"), st.sampled_from([1, 1, 1, 2, 4])),
        st.tuples(st.sampled_from(["give back", "finish", "pause", "resume"]), PICK),
        st.tuples(st.sampled_from(["promote", "sweep", "lose"]), st.just(0)),
    ),
    min_size=10,
    max_size=40,
)


class Account:
    """One account with its batches and leases, on one connection."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self.batches: list[NewBatch] = []
        self.leases: list[Lease] = []
        self.claims = self.marked = 0

    async def begin(self) -> None:
        await support.clear(self.conn)
        self.tenant, self.pool = await support.make_tenant(self.conn), await support.make_pool(self.conn)
        await self.register()

    async def register(self) -> None:
        self.worker = await service.register_worker(
            self.conn, pool_id=self.pool, host="test", pid=1, lease_seconds=3600
        )

    async def one(self, sql: str) -> int:
        row = await (await self.conn.execute(sql)).fetchone()
        assert row
        return int(row[0])

    async def step(self, verb: str, number: int) -> None:
        if verb == "submit":
            batch = await support.new_batch(self.conn, self.tenant, self.pool, 6, deadline_seconds=1000 + 60 * number)
            async with self.conn.transaction():
                await support.put(self.conn, batch, [10] * 6, max_items=2)
            self.batches.append(batch)
        elif verb == "claim":
            await self.claim(number)
        elif verb in ("give back", "finish") and self.leases:
            await self.end(self.leases.pop(number % len(self.leases)), done=verb == "finish")
        elif verb in ("pause", "resume") and self.batches:
            batch = self.batches[number % len(self.batches)]
            async with self.conn.transaction():
                await batch_state.transition(self.conn, verb, self.tenant, batch.request_id)
        elif verb == "promote":
            await self.conn.execute("update chunk set not_before = now() where not_before is not null")
            await chunk_sweeps.promote(self.conn)
        elif verb == "sweep":
            await chunk_sweeps.sweep(self.conn)
        elif verb == "lose":
            await self.conn.execute("update worker set lease_until = now() - interval '1 second'")
            await reaping.reap(self.conn)
            self.leases.clear()
            await self.register()

    async def claim(self, chunks: int) -> None:
        expected = [row[0] for row in await (await self.conn.execute(FIRST, (chunks,))).fetchall()]
        leases = await service.claim(self.conn, self.pool, self.worker, chunks=chunks)
        assert sorted(lease.chunk_id for lease in leases) == sorted(expected)
        self.leases += leases
        self.claims += len(leases)
        self.marked += await self.one(MARKED)

    async def end(self, lease: Lease, *, done: bool) -> None:
        if done:
            items = await service.load(self.conn, lease)
            assert await service.flush(self.conn, lease, support.answers(items))
        assert await service.finish(self.conn, lease, backoff_seconds=100.0) is not None


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def test_each_claim_takes_the_chunks_that_one_without_a_mark_would(ring: Ring, runner: asyncio.Runner) -> None:
    met = [0, 0]

    async def walk(steps: list[tuple[str, int]]) -> None:
        conn = await PooledConnection.connect(url, autocommit=True, options="-c synchronous_commit=off")
        async with conn:
            account = Account(conn)
            await account.begin()
            for verb, number in steps:
                await account.step(verb, number)
                assert await account.one(BEFORE) == 0, f"{verb}: a chunk that no claim would find"
            async with conn.transaction():
                assert (await order_drift.recompute(conn)).drifts == []
        met[0] += account.claims
        met[1] += account.marked

    @drawn(25, 200)
    @given(steps=STEPS)
    def property_holds(steps: list[tuple[str, int]]) -> None:
        runner.run(walk(steps))

    with ring.taken() as url:
        property_holds()
    assert min(met) > 20


async def marked(database: Database) -> list[bool]:
    async with database.relaxed() as conn:
        return [bool(row[0]) for row in await (await conn.execute(MARKED)).fetchall()]


async def two_batches(database: Database) -> tuple[int, int, int, list[NewBatch]]:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    worker = await support.make_worker(database, pool)
    batches = [await support.submit(database, tenant, pool, 4) for _ in range(2)]
    async with database.durable() as conn:  # the second one is due long after the first
        later = "update chunk set deadline = deadline + interval '1 hour' where batch_id = %s"
        await conn.execute(later, (batches[1].batch_id,))
    return tenant, pool, worker, batches


async def test_a_chunk_whose_claim_rolls_back_is_not_passed_over_by_the_next_one(database: Database) -> None:
    _, pool, worker, batches = await two_batches(database)
    holds = "select from chunk where batch_id = %s for update"
    async with database.transaction() as other:
        await other.execute(holds, (batches[0].batch_id,))  # as a claim does until it commits
        async with database.relaxed() as conn:
            lease = await support.claim(conn, pool, worker)
            assert lease is not None
            assert lease.batch_id == batches[1].batch_id
    assert await marked(database) == [True]
    async with database.relaxed() as conn:
        lease = await support.claim(conn, pool, worker)
    assert lease is not None
    assert lease.batch_id == batches[0].batch_id


async def test_a_chunk_that_arrives_while_a_claim_waits_is_not_passed_over(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = {chunks: claim.replace("'100ms'", "'1h'") for chunks, claim in fair_order_sql.CLAIM.items()}
    monkeypatch.setattr(fair_order_sql, "CLAIM", patient)
    tenant, pool, worker, batches = await two_batches(database)
    async with in_time():
        async with database.relaxed() as claiming:
            async with database.transaction() as conn:
                urgent = await support.new_batch(conn, tenant, pool, 4, deadline_seconds=60)
                await support.put(conn, urgent, [10] * 4)
                await conn.execute("select from sched for update")
                claim = asyncio.create_task(support.claim(claiming, pool, worker))
                await support.until_waiting_or(database, claim)
                assert not claim.done()
            first = await claim
        assert first is not None
        assert first.batch_id == batches[0].batch_id  # of what was there when it began
    async with database.relaxed() as conn:
        second = await support.claim(conn, pool, worker)
    assert second is not None
    assert second.batch_id == urgent.batch_id


@pytest.mark.parametrize("verb", ["reserve", "move"])
async def test_chunks_that_get_money_or_need_none_are_not_passed_over(database: Database, verb: str) -> None:
    tenant, _, _, batches = await two_batches(database)
    move = {"tenant_id": tenant, "limit": 9, "line_id": [7], "budgets": [None], "price": [0], "context_window": [9]}
    async with database.relaxed() as conn:
        await conn.execute(
            """update chunk set state = 'unreserved', budgets = '{1}', line_id = 7, maximum_cost = 0, maximum_tokens = 0
               where batch_id = %s""",
            (batches[0].batch_id,),
        )
        await conn.execute("update sched set ready = 1, first_deadline = now() + interval '2 days'")
        await conn.execute("update chunk set deadline = now() + interval '3 days' where state = 'ready'")
        if verb == "reserve":
            await support.serve_all(database)
            await queued.reserve(database, MODELS)
        else:
            await conn.execute(sql.MOVE, move)
        ready, before = (await (await conn.execute(f"select ready, ({BEFORE}) from sched")).fetchone()) or (0, 0)
    assert (ready, before) == (2, 0)


async def test_a_mark_behind_a_ready_chunk_is_reset_and_counts_as_a_drift(database: Database) -> None:
    _, pool, worker, _ = await two_batches(database)
    async with database.transaction() as conn:
        await conn.execute("update sched set first_deadline = 'infinity'")
        assert await support.claim(conn, pool, worker) is None
        [drift] = (await order_drift.recompute(conn)).drifts
        assert (drift.ready, drift.inflight_tokens) == (0, 0)
        assert await support.claim(conn, pool, worker) is not None
        assert (await order_drift.recompute(conn)).drifts == []


def test_chunks_that_were_claimed_under_an_old_snapshot_cost_the_next_claim_nothing(backlog: Backlog) -> None:
    claim = (fair_order_sql.CLAIM[1], backlog.claim | {"pool_id": 2})
    backlog.conn.execute(FLOOD, (backlog.day - 1, CLAIMED + 1000))
    backlog.settle_statistics()
    backlog.one(*claim)
    before = backlog.pages_of_a_claim(pool_id=2)
    with psycopg.connect(backlog.url, options=PATIENT) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("select count(*) from sched")
        backlog.conn.execute(RUN, (backlog.worker, CLAIMED))
        backlog.conn.execute("vacuum chunk")
        walked = explain(backlog.conn, *claim, prepared=False).pages
        backlog.one(*claim)
        pinned = backlog.pages_of_a_claim(pool_id=2)
    timing.note(
        f"pages per claim after {CLAIMED} chunks under an old snapshot: {before} → {pinned}, the first {walked}"
    )
    assert walked > 20 * before  # they are in the way
    assert pinned <= 3 * before
