"""Arm: many callers at once against one budget, through our API and through another proxy, on the same fake engine."""

import asyncio
import tempfile
from pathlib import Path
from time import sleep
from typing import Any

import httpx

from benchmarks.gateway.installation import installation, timed_engine
from benchmarks.governance import callers, litellm_proxy
from benchmarks.governance.callers import Budgeted
from benchmarks.harness import ACCOUNT, Testbed

ANSWER_TOKENS = 20
BUDGET_TOKENS = 10_000  # of about 26 for each of 1,280 calls
_KNOWN_SECONDS = 2.0  # every process knows a new budget within a second


def race(testbed: Testbed, calls: int, *, peer: bool = True) -> dict[str, Any]:
    """How far each overspends, and how much of the budget its callers could use. `peer`: whether the other proxy runs, too."""
    found: dict[str, Any] = {"race_budget_tokens": BUDGET_TOKENS, "race_callers": callers.CALLERS}
    with timed_engine(latency=0.05, token_seconds=0.005, answer_tokens=ANSWER_TOKENS) as engine:
        with installation(testbed, [engine]) as ours:
            budgets = f"{ours.base}/client/v4/accounts/{ACCOUNT}/ai/budgets/shared"
            headers = dict(ours.headers)
            httpx.put(budgets, json={"max_tokens": BUDGET_TOKENS}, headers=headers).raise_for_status()
            sleep(_KNOWN_SECONDS)
            found |= _one("ours", Budgeted(ours.base, headers), calls)
            [budget] = httpx.get(budgets.rpartition("/")[0], headers=headers).json()["result"]
            found["ours_spent_by_the_budget"] = budget["spent"]
        if not peer:
            return found
        with (
            tempfile.TemporaryDirectory() as folder,
            litellm_proxy.proxy(Path(folder), engine, BUDGET_TOKENS) as theirs,
        ):
            if isinstance(theirs, str):
                found |= {"litellm_overspend_share": None, "litellm_not_run": theirs}
            else:
                found |= _one("litellm", theirs, calls) | {"litellm_version": litellm_proxy.VERSION}
    return found


def _one(name: str, proxy: Budgeted, calls: int) -> dict[str, Any]:
    return callers.figures(name, asyncio.run(callers.race(proxy, calls, ANSWER_TOKENS)), BUDGET_TOKENS)
