"""Arms of benchmarks.queue about the order of work: the cost of a claim, the fairness of shares, the duration of a cancel."""

import asyncio
import random
import uuid
from statistics import median
from time import monotonic
from typing import Any

from app.batches import lifecycle
from app.db.pool import Connection, Database
from app.engines.service import ensure_pool
from app.queue import copy_format, fair_order_sql, ingest, order_deltas, service
from app.queue.chunking import cut
from app.queue.types import Item, Result
from app.tenants.service import Tenant, ensure_tenant
from benchmarks.harness import Testbed, say

WEIGHTS = {"one": 1.0, "same": 1.0, "double": 2.0}
_BATCH = 50_000
# Not a rollback: after one, psycopg prepares its statements anew, and the claim would be planned each time.
GIVE_BACK = """
with given as (update chunk set state = 'ready', worker_id = null where worker_id = %s and state = 'leased'
               returning pool_id, tenant_id, est_tokens)
update sched s set ready = ready + 1, inflight_tokens = inflight_tokens - est_tokens, vtime = vtime - est_tokens
from given where (s.pool_id, s.tenant_id) = (given.pool_id, given.tenant_id)"""
FOLD_EVERY = 100  # chunks


async def enqueue(
    database: Database, account: str, model: str, items: int, *, tokens: int, chunk: int
) -> ingest.NewBatch:
    """Enqueue a batch of small items, at most `chunk` in a chunk. Small bodies suffice, because a claim reads none."""
    async with database.transaction() as conn:
        tenant_id, pool_id = await ensure_tenant(conn, account), await ensure_pool(conn, model)
        batch_id = await ingest.next_batch_id(conn)
        batch = ingest.NewBatch(batch_id, uuid.uuid4(), tenant_id, pool_id, model, "/v1/completions", items, 86_400)
        small = b'{"prompt": "a small body"}'
        payload = b"".join(copy_format.payload_row(batch_id, seq, None, None, tokens, small) for seq in range(items))
        cuts = cut([tokens] * items, max_tokens=tokens * chunk, max_items=chunk)
        await ingest.enqueue(conn, batch, [copy_format.HEADER, payload, copy_format.TRAILER], cuts)
    return batch


async def register(database: Database, pool_id: int) -> int:
    """Register a worker whose lease outlasts the arm."""
    async with database.durable() as conn:
        return await service.register_worker(conn, pool_id=pool_id, host="bench", pid=1, lease_seconds=3600)


# ---------------------------------------------------------------- claims


def claims(testbed: Testbed, sizes: dict[str, int], count: int) -> dict[str, Any]:
    """Milliseconds and buffers of a claim, for backlogs of several sizes in one database. Every chunk is given back."""
    url = testbed.database()

    async def measure() -> dict[str, Any]:
        async with Database(url, size=2) as database:
            pools = {name: await _backlog(database, name, items) for name, items in sizes.items()}
            async with database.relaxed() as conn:
                # Autovacuum would do so within a minute (see the thresholds in app/queue/tables.py).
                await conn.execute("vacuum analyze")
                times = await _claim_times(conn, pools, count)
                buffers = {name: await _claim_buffers(conn, *pool) for name, pool in pools.items()}
        return _claim_figures(times, buffers, count)

    return asyncio.run(measure())


def _claim_figures(times: dict[str, list[float]], buffers: dict[str, float], count: int) -> dict[str, Any]:
    found: dict[str, Any] = {f"claim_buffers_{name}": value for name, value in buffers.items()}
    for name, values in times.items():
        found[f"claim_ms_{name}"] = round(median(values), 4)
        found[f"claim_p99_ms_{name}"] = round(sorted(values)[int(len(values) * 0.99)], 4)
    small, *_, large = times
    found["claim_ratio"] = round(found[f"claim_ms_{large}"] / found[f"claim_ms_{small}"], 3)
    say(f"claims: {found}")
    return found | {"claim_samples": count}


async def _backlog(database: Database, name: str, items: int) -> tuple[int, int]:
    """A pool with `items` open items of four tenants, and a worker of that pool."""
    began, left, number = monotonic(), items, 0
    while left > 0:
        batch = min(_BATCH, left, max(1, items // 4))
        await enqueue(database, f"tenant-{number % 4}", name, batch, tokens=200, chunk=64)
        left, number = left - batch, number + 1
    say(f"backlog of {items:,} items in {monotonic() - began:.1f} s")
    async with database.relaxed() as conn:
        pool_id = await ensure_pool(conn, name)
    return pool_id, await register(database, pool_id)


async def _claim_times(conn: Connection, pools: dict[str, tuple[int, int]], count: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in pools}
    for round_number in range(-20, count):  # the first ones are for warm-up: caches, prepared statements
        for name, pool in pools.items():
            began = monotonic()
            assert await service.claim(conn, *pool)
            spent = monotonic() - began
            await conn.execute(GIVE_BACK, (pool[1],))
            if round_number >= 0:
                times[name].append(spent * 1e3)
    return times


async def _claim_buffers(conn: Connection, pool_id: int, worker_id: int, count: int = 30) -> float:
    """Median number of shared buffers that the claim statement hits or reads."""
    touched: list[int] = []
    for _ in range(count):
        async with conn.transaction(force_rollback=True):
            explain = f"explain (analyze, buffers, format json) {fair_order_sql.CLAIM[1]}".encode()
            row = await (await conn.execute(explain, {"pool_id": pool_id, "worker_id": worker_id})).fetchone()
            assert row
            plan = row[0][0]["Plan"]
            touched.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
    return median(touched)


# ---------------------------------------------------------------- fairness


def fairness(testbed: Testbed, chunks: int) -> dict[str, Any]:
    """The largest relative deviation of a tenant's share of tokens from its share of the weights, with deep backlogs.

    Tenants have items of different sizes, and the tokens used differ from the estimates.
    """
    url = testbed.database()

    async def measure() -> dict[str, int]:
        async with Database(url, size=2) as database:
            for number, (account, weight) in enumerate(WEIGHTS.items()):
                await enqueue(database, account, "fair", chunks * 16, tokens=100 + 60 * number, chunk=16)
                async with database.relaxed() as conn:
                    await conn.execute("update tenant set weight = %s where account_id = %s", (weight, account))
            return await _use(database, chunks)

    used = asyncio.run(measure())
    total, weights = sum(used.values()), sum(WEIGHTS.values())
    shares = {account: used[account] / total for account in WEIGHTS}
    error = max(abs(shares[account] / (weight / weights) - 1) for account, weight in WEIGHTS.items())
    say(f"fairness: shares {shares}, error {error:.4f}")
    return {
        "fair_share_error": round(error, 4),
        "fair_shares": {account: round(share, 4) for account, share in shares.items()},
        "fair_chunks": chunks,
    }


async def _use(database: Database, chunks: int) -> dict[str, int]:
    """Tokens used by each tenant after `chunks` chunks, of which four are leased at a time."""
    rng, used = random.Random(7), dict.fromkeys(WEIGHTS, 0)
    async with database.durable() as conn:
        pool_id = await ensure_pool(conn, "fair")
    worker_id = await register(database, pool_id)
    async with database.relaxed() as relaxed, database.durable() as durable:
        rows_ = await (await relaxed.execute("select tenant_id, account_id from tenant")).fetchall()
        accounts, held = dict(rows_), []
        for number in range(chunks):
            if number % FOLD_EVERY == 0:  # as the steward does
                await order_deltas.fold(relaxed)
            [lease] = await service.claim(relaxed, pool_id, worker_id)
            held.append(lease)
            if len(held) < 4:
                continue
            lease = held.pop(rng.randrange(4))
            results = [_result(item, rng) for item in await service.load(relaxed, lease)]
            assert await service.flush(durable, lease, results)
            assert await service.finish(durable, lease)
            spent = sum(r.prompt_tokens + r.completion_tokens for r in results)
            used[accounts[lease.tenant_id]] += spent
    return used


def _result(item: Item, rng: random.Random) -> Result:
    return Result(item.seq, True, 1, 20, 0, rng.randrange(5, 120), b'{"choices": []}')


# ---------------------------------------------------------------- cancel


def cancel(testbed: Testbed, items: int, repeats: int) -> dict[str, Any]:
    """Milliseconds to cancel a batch without claimed chunks, including its event and the commit."""
    url = testbed.database()

    async def measure() -> list[float]:
        times = []
        async with Database(url, size=2) as database:
            for _ in range(repeats):
                batch = await enqueue(database, "cancels", "cancel", items, tokens=200, chunk=64)
                tenant = Tenant(batch.tenant_id, "cancels")
                began = monotonic()
                ended = await lifecycle.change_state(database, tenant, batch.request_id, "cancel")
                times.append((monotonic() - began) * 1e3)
                assert ended, "nothing was claimed, so the cancel is the batch's end"
        return times

    times = asyncio.run(measure())
    say(f"cancel: {', '.join(f'{ms:.1f}' for ms in times)} ms")
    return {"cancel_50k_ms": round(median(times), 2), "cancel_samples": len(times)}
