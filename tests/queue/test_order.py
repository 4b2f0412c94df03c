"""The order of claims: deadlines, the urgent lane, limits in flight, common prefixes."""

import random
from collections import Counter

import pytest

from app.db.pool import Database
from app.queue import order_deltas, order_drift, service
from app.queue.chunking import cut
from tests.queue import support


async def due(database: Database, batch_id: int, seconds: float) -> None:
    async with database.durable() as conn:
        await conn.execute(
            "update chunk set deadline = now() + make_interval(secs => %s) where batch_id = %s", (seconds, batch_id)
        )
        await conn.execute("update sched set first_deadline = '-infinity'")


async def claimed(database: Database, pool: int, worker: int, *, urgent: bool = False) -> int | None:
    """Claim a chunk. Returns its batch."""
    async with database.relaxed() as conn:
        lease = await support.claim(conn, pool, worker, urgent=urgent)
    return lease and lease.batch_id


async def test_within_a_tenant_the_earliest_deadline_comes_first(database: Database) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    batches = [(await support.submit(database, tenant, pool, 4)).batch_id for _ in range(4)]
    for batch, seconds in zip(batches, (300, 100, 400, 200), strict=True):
        await due(database, batch, seconds)
    worker = await support.make_worker(database, pool)
    order = [await claimed(database, pool, worker) for _ in batches]
    assert order == [batches[i] for i in (1, 3, 0, 2)]


async def test_the_urgent_lane_prefers_a_near_deadline_and_charges_it(database: Database) -> None:
    async with database.durable() as conn:
        calm, hurried = await support.make_tenant(conn, "calm"), await support.make_tenant(conn, "hurried")
        pool = await support.make_pool(conn)
    await support.submit(database, calm, pool, 64)
    batch = await support.submit(database, hurried, pool, 64)
    worker = await support.make_worker(database, pool)
    assert await claimed(database, pool, worker, urgent=True) is None
    await due(database, batch.batch_id, 60)
    async with database.durable() as conn:
        await conn.execute("update sched set vtime = 1000 where tenant_id = %s", (hurried,))
        assert await claimed(database, pool, worker) != batch.batch_id
        assert await claimed(database, pool, worker, urgent=True) == batch.batch_id
        row = await (await conn.execute("select vtime from sched where tenant_id = %s", (hurried,))).fetchone()
    assert row == (2600.0,)


async def test_short_deadlines_buy_no_share(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """One account has only near deadlines, one has none. In a long run, every fourth claim is urgent, and every tenth is
    its share.
    """
    monkeypatch.setattr(service, "URGENT_LEAD_TOKENS", 80)
    async with database.durable() as conn:
        pushy, patient = await support.make_tenant(conn, "pushy", 1), await support.make_tenant(conn, "patient", 9)
        pool = await support.make_pool(conn)
    batch = await support.submit(database, pushy, pool, 400, tokens=8, max_items=1)
    await due(database, batch.batch_id, 60)
    await support.submit(database, patient, pool, 400, tokens=8, max_items=1)
    worker = await support.make_worker(database, pool)
    served = []
    for n in range(320):
        async with database.relaxed() as conn:
            lease = await support.claim(conn, pool, worker, urgent=True) if n % 4 == 0 else None
            lease = lease or await support.claim(conn, pool, worker)
        assert lease is not None
        served.append(lease.tenant_id)
        await support.run_chunk(database, lease)
    ahead = service.URGENT_LEAD_TOKENS / 8  # items by which the lane may bring it ahead, once
    assert 320 / 10 - 8 <= served.count(pushy) <= 320 / 10 + ahead + 8
    assert served[160:].count(pushy) <= 160 / 10 + 8


async def test_a_tenant_at_its_cap_waits_and_the_next_one_is_served(database: Database) -> None:
    async with database.durable() as conn:
        capped, other = await support.make_tenant(conn, "capped"), await support.make_tenant(conn, "other")
        pool = await support.make_pool(conn)
        await conn.execute("update tenant set max_inflight_tokens = 1600 where tenant_id = %s", (capped,))
    first = await support.submit(database, capped, pool, 64)
    second = await support.submit(database, other, pool, 32)
    worker = await support.make_worker(database, pool)
    order = [await claimed(database, pool, worker) for _ in range(4)]
    assert sorted(batch for batch in order if batch) == sorted([first.batch_id, second.batch_id, second.batch_id])


async def accounts(database: Database, count: int, *, tokens: int = 100, items: int = 4) -> tuple[list[int], int]:
    """Accounts with one batch each in a pool, whose chunks have one item each."""
    async with database.durable() as conn:
        pool = await support.make_pool(conn)
        tenants = [await support.make_tenant(conn, f"account {n}") for n in range(count)]
    for tenant in tenants:
        await support.submit(database, tenant, pool, items, tokens=tokens, max_items=1)
    return tenants, pool


async def test_of_many_accounts_each_is_served_to_a_turn_and_a_chunk(database: Database) -> None:
    """More accounts than those whose order is exact. A turn is 65,536 tokens."""
    tenants, pool = await accounts(database, 40, tokens=10_000, items=20)
    worker = await support.make_worker(database, pool)
    served = Counter[int]()
    async with database.relaxed() as conn:
        for _ in range(400):
            lease = await support.claim(conn, pool, worker)
            assert lease is not None
            served[lease.tenant_id] += lease.est_tokens
    assert served.keys() == set(tenants)
    assert max(served.values()) - min(served.values()) <= 65_536 + 10_000


async def test_a_claim_of_several_chunks_takes_them_of_one_account_and_charges_each(database: Database) -> None:
    tenants, pool = await accounts(database, 2, items=3)
    worker = await support.make_worker(database, pool)
    async with database.relaxed() as conn:
        claims = [await service.claim(conn, pool, worker, chunks=chunks) for chunks in (2, 4, 1, 4, 4)]
        charged = await conn.execute("select ready, inflight_tokens, vtime from sched")
        assert await charged.fetchall() == [(0, 300, 300.0), (0, 300, 300.0)]
    assert [len(leases) for leases in claims] == [2, 3, 1, 0, 0]
    assert [len({lease.tenant_id for lease in leases}) for leases in claims] == [1, 1, 1, 0, 0]
    assert {lease.tenant_id for leases in claims for lease in leases} == set(tenants)


async def test_what_a_lease_used_is_charged_once_it_is_folded_and_no_drift_before(database: Database) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn, weight=2), await support.make_pool(conn)
    await support.submit(database, tenant, pool, 4)
    await support.drain(database, pool, await support.make_worker(database, pool))
    order = "select inflight_tokens, served_tokens, vtime from sched"
    async with database.transaction() as conn:
        assert await (await conn.execute(order)).fetchall() == [(400, 0, 200.0)]
        assert (await order_drift.recompute(conn)).drifts == []
    async with database.relaxed() as conn:
        assert await order_deltas.fold(conn) == 1
        assert await (await conn.execute(order)).fetchall() == [(0, 400, 16.0)]  # four answers of eight tokens
        assert await order_deltas.fold(conn) == 0
    async with database.transaction() as conn:
        assert (await order_drift.recompute(conn)).drifts == []


async def test_an_account_that_wakes_joins_the_lowest_that_are_active_or_else_the_highest(database: Database) -> None:
    tenants, pool = await accounts(database, 3, items=1)
    async with database.durable() as conn:
        late = await support.make_tenant(conn, "late")
        for tenant, vtime in zip(tenants, (5e6, 3e6, 4e6), strict=True):
            await conn.execute("update sched set vtime = %s where tenant_id = %s", (vtime, tenant))
        own = "select vtime from sched where tenant_id = %s"
        await support.submit(database, late, pool, 1)
        assert await (await conn.execute(own, (late,))).fetchone() == (3e6,)
        await conn.execute("delete from chunk")
        await conn.execute("update sched set ready = 0")
        await support.submit(database, late, pool, 1)
        assert await (await conn.execute(own, (late,))).fetchone() == (5e6,)


async def test_caches_that_were_wrong_are_made_true_and_the_drift_is_told(database: Database) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    await support.submit(database, tenant, pool, 48)
    worker = await support.make_worker(database, pool)
    assert await claimed(database, pool, worker)
    async with database.transaction() as conn:
        assert (await order_drift.recompute(conn)).drifts == []
        await conn.execute("update sched set ready = 0, inflight_tokens = 5")
    assert await claimed(database, pool, worker) is None  # hidden work
    async with database.transaction() as conn:
        [drift] = (await order_drift.recompute(conn)).drifts
    assert (drift.pool_id, drift.tenant_id, drift.ready, drift.inflight_tokens) == (pool, tenant, 2, 1595)
    assert await claimed(database, pool, worker)


def test_items_with_a_common_prefix_are_adjacent_and_their_groups_are_not_split() -> None:
    keys = [1, 2, 1, 2, 3, 1]
    chunks = cut([10] * 6, max_tokens=40, max_items=4, keys=keys)
    assert [(chunk.seqs, chunk.lo, chunk.hi, chunk.n) for chunk in chunks] == [
        ([0, 2, 5], 0, 5, 3),
        ([1, 3, 4], 1, 4, 3),
    ]


def test_without_common_prefixes_chunks_are_ranges_in_input_order() -> None:
    chunks = cut([10] * 10, max_tokens=40, max_items=99, keys=range(10))
    assert [(chunk.lo, chunk.hi, chunk.seqs) for chunk in chunks] == [(0, 3, None), (4, 7, None), (8, 9, None)]


@pytest.mark.parametrize("seed", range(20))
def test_every_item_is_in_exactly_one_chunk_within_the_limits(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.randint(1, 300)
    tokens = [chance.randint(1, 500) for _ in range(count)]
    keys = [chance.randint(0, 20) for _ in range(count)] if seed % 2 else None
    seqs = sorted(chance.sample(range(1000), count)) if seed % 3 else None
    chunks = cut(tokens, max_tokens=400, max_items=8, keys=keys, seqs=seqs)
    items = [seq for chunk in chunks for seq in (chunk.seqs or range(chunk.lo, chunk.hi + 1))]
    assert sorted(items) == (seqs or list(range(count)))
    by_seq = dict(zip(seqs or range(count), tokens, strict=True))
    for chunk in chunks:
        members = chunk.seqs or list(range(chunk.lo, chunk.hi + 1))
        assert (chunk.lo, chunk.hi, chunk.n) == (min(members), max(members), len(members))
        assert chunk.est_tokens == sum(by_seq[seq] for seq in members)
        assert chunk.n == 1 or (chunk.est_tokens <= 400 and chunk.n <= 8)
