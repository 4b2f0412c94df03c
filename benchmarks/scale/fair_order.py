"""What a claim costs with ten accounts, with ten thousand, and while an old snapshot keeps every dead row."""

from statistics import median
from time import monotonic
from typing import Any

import psycopg

from app.queue import chunk_sweeps_sql
from benchmarks.harness import open_testbed, say
from benchmarks.scale import accounts, pgbench

FEW, MANY = 10, 10_000


def fair_order(*, chunks: int = 60_000, claims: int = 300, rounds: int = 5, pinned: int = 3000) -> dict[str, Any]:
    """Milliseconds of a claim in either pool, in turns; then the same under a snapshot that was there before `pinned` chunks."""
    with open_testbed("") as testbed:
        url = testbed.database()
        pools = {n: accounts.fill(url, f"{n} accounts", n, chunks // n) for n in (FEW, MANY)}
        urgent = round(1000 / pgbench.rate(url, pools[MANY].urgent_claim, times=claims), 3)
        promoting = _promote_ms(url, pools[MANY])
        with pgbench.folding(url):
            before = _claim_ms(url, pools, claims, rounds)
            with psycopg.connect(url) as old:
                old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                old.execute("select count(*) from chunk")
                for pool in pools.values():
                    pgbench.rate(url, pool.claim_and_finish, times=pinned)
                under = _claim_ms(url, pools, claims, rounds)
    say(f"fair order: {before} ms, under an old snapshot {under} ms")
    return {
        "claim_ratio_10k_tenants": round(before[MANY] / before[FEW], 2),
        "claim_pinned_ratio": round(max(under[n] / before[n] for n in pools), 2),
        "claim_ms_10_tenants": before[FEW],
        "claim_ms_10k_tenants": before[MANY],
        "urgent_claim_ms_10k_tenants": urgent,
        "promote_500_ms_10k_tenants": promoting,
        "claim_pinned_ms": list(under.values()),
        "claim_pinned_chunks": pinned,
    }


# Chunks of 500 accounts that waited, and have no other work.
_DELAY = """
with late as (select pool_id, tenant_id, min(chunk_id) as chunk_id from chunk
              where pool_id = %(pool_id)s and state = 'ready' group by 1, 2 order by 2 limit 500),
 idle as (update sched s set ready = 0 from late where (s.pool_id, s.tenant_id) = (late.pool_id, late.tenant_id))
update chunk c set state = 'delayed', not_before = now() from late where c.chunk_id = late.chunk_id"""


def _promote_ms(url: str, pool: accounts.Accounts, repeats: int = 5) -> float:
    """Milliseconds of the promotion of 500 chunks, each of another account."""
    found = []
    with psycopg.connect(url, autocommit=True) as conn:
        for _ in range(repeats):
            with conn.transaction(force_rollback=True):
                conn.execute(_DELAY, {"pool_id": pool.pool_id})
                began = monotonic()
                assert conn.execute(chunk_sweeps_sql.PROMOTE.encode()).fetchone() == (500,)
                found.append((monotonic() - began) * 1e3)
    return round(median(found), 1)


def _claim_ms(url: str, pools: dict[int, accounts.Accounts], claims: int, rounds: int) -> dict[int, float]:
    found: dict[int, list[float]] = {n: [] for n in pools}
    for _ in range(rounds):
        for n, pool in pools.items():
            found[n].append(1000 / pgbench.rate(url, pool.claim, times=claims))
    return {n: round(median(values), 3) for n, values in found.items()}
