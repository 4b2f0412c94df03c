"""Whether one account is served as fast as a hundred by sixteen connections, which all change its row of the fair order."""

from statistics import median
from typing import Any

from benchmarks.harness import open_testbed, say
from benchmarks.scale import accounts, pgbench

CONNECTIONS = 16
HOT, MANY = 1, 100


def hot_account(*, chunks: int = 200_000, seconds: int = 6, rounds: int = 5) -> dict[str, Any]:
    """Claims with their finishes per second, of one account and of a hundred, in turns."""
    rates: dict[int, list[float]] = {HOT: [], MANY: []}
    with open_testbed("") as testbed:
        url = testbed.database()
        pools = {n: accounts.fill(url, f"{n} accounts", n, chunks // n) for n in rates}
        with pgbench.folding(url):
            for _ in range(rounds):
                for n, pool in pools.items():
                    rates[n].append(pgbench.rate(url, pool.claim_and_finish, clients=CONNECTIONS, seconds=seconds))
    hot, many = median(rates[HOT]), median(rates[MANY])
    say(f"hot account: {hot:,.0f} chunks/s, {MANY} accounts {many:,.0f}")
    return {
        "hot_tenant_ratio": round(hot / many, 2),
        "hot_tenant_chunks_s": [round(rate) for rate in rates[HOT]],
        "hundred_tenants_chunks_s": [round(rate) for rate in rates[MANY]],
    }
