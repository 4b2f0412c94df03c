"""What a claim costs with ten accounts, with ten thousand, and while an old snapshot keeps every dead row."""

from statistics import median
from typing import Any

import psycopg

from benchmarks.harness import open_testbed, say
from benchmarks.scale import accounts, pgbench

FEW, MANY = 10, 10_000


def fair_order(*, chunks: int = 60_000, claims: int = 300, rounds: int = 7, pinned: int = 3000) -> dict[str, Any]:
    """Milliseconds of a claim in either pool, in turns; then the same under a snapshot that was there before `pinned` chunks."""
    with open_testbed("") as testbed:
        url = testbed.database()
        pools = {n: accounts.fill(url, f"{n} accounts", n, chunks // n) for n in (FEW, MANY)}
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
        "claim_pinned_ms": list(under.values()),
        "claim_pinned_chunks": pinned,
    }


def _claim_ms(url: str, pools: dict[int, accounts.Accounts], claims: int, rounds: int) -> dict[int, float]:
    found: dict[int, list[float]] = {n: [] for n in pools}
    for _ in range(rounds):
        for n, pool in pools.items():
            found[n].append(1000 / pgbench.rate(url, pool.claim, times=claims))
    return {n: round(median(values), 3) for n, values in found.items()}
