"""Arm: how far a batch overspends a budget that is too small for it."""

from time import monotonic, sleep
from typing import Any

import httpx
import psycopg

from app.budgets import service
from app.budgets.sql import GAUGES
from benchmarks.gateway.installation import installation, timed_engine
from benchmarks.harness import ACCOUNT, RUN, Testbed, part, say

_ANSWER_TOKENS = 20
_ITEM_COST = 1200  # 10^-9 USD, about what one costs
_STILL_SECONDS = 4.0
_MOST_SECONDS = 180.0


def overshoot(testbed: Testbed, items: int) -> dict[str, Any]:
    """A batch with a budget for half of it, on a fake engine whose answers are as long as allowed, or half as long."""
    most = items * _ITEM_COST // 2
    with timed_engine(latency=0.01, answer_tokens=_ANSWER_TOKENS) as engine, installation(testbed, [engine]) as ours:
        settings = testbed.settings(ours.database_url)
        headers = dict(ours.headers)
        budget = f"{ours.base}/client/v4/accounts/{ACCOUNT}/ai/budgets/tight"
        httpx.put(
            budget, json={"max_cost": f"{most / 1e9:.9f} USD", "period": "total"}, headers=headers
        ).raise_for_status()
        with part(settings, "workers.steward"), psycopg.connect(ours.database_url, autocommit=True) as conn:
            body = {"requests": [{"prompt": f"item {n}", "max_tokens": _ANSWER_TOKENS} for n in range(items)]}
            httpx.post(ours.base + RUN, params={"queueRequest": "true"}, json=body, headers=headers).raise_for_status()
            spent, reserved, bound = _settled(conn)
    say(f"a budget of {most:,} (10^-9 USD) for twice as much work: {spent:,} spent, {reserved:,} reserved at the end")
    found = {"tight_budget_units": most, "tight_spent_units": spent, "tight_reserved_units": reserved}
    return found | {"overshoot_units": max(0, spent - most), "overshoot_bound_units": bound}


def _settled(conn: psycopg.Connection) -> tuple[int, int, int]:
    """Spent and reserved, once they have not changed for a while, and the largest bound of the overshoot."""
    deadline, still, last, bound = monotonic() + _MOST_SECONDS, monotonic(), (0, 0), 0
    while monotonic() < deadline:
        gauges = conn.execute(GAUGES.encode(), {"dead_seconds": service.DEAD_SECONDS}).fetchall()
        bound = max(bound, *(int(value) for name, _, value in gauges if name == "budget_overshoot_bound"))
        row = conn.execute("select spent, reserved from budget").fetchone()
        assert row
        now = (int(row[0]), int(row[1]))
        if now != last:
            still, last = monotonic(), now
        if now[0] and monotonic() - still > _STILL_SECONDS:
            return *now, bound
        sleep(0.1)
    raise SystemExit("the batch under a tight budget did not come to rest")
