"""Arms: what ledger and budgets cost the queue. Pairs of runs with them and without, alternating, on one server."""

import asyncio
import contextlib
from collections.abc import Iterator
from statistics import median
from time import monotonic
from typing import Any

import httpx

from app.cli.key import create_key
from app.settings import Settings
from app.tenants.key_scope import EVERYTHING
from benchmarks.governance.drift import drifts
from benchmarks.governance.served import served
from benchmarks.harness import ACCOUNT, Api, Testbed, part, say, until_ready
from benchmarks.queue import drain as queue_drain
from benchmarks.queue.workload import body, line, pool_at
from benchmarks.statistics import interval

LABELS = {"x-slackwater-workflow": "digest", "x-slackwater-task": "extract", "x-slackwater-critical": "false"}
# A price is small and these are large, so money is reserved for all work; each item is counted by all three.
BUDGETS: dict[str, dict[str, Any]] = {
    "company": {"max_cost": "1000000 USD", "alerts_at": [75, 90]},
    "digest": {"max_cost": "1000000 USD", "workflow": "digest"},
    "tokens": {"max_tokens": 10**14},
}


class Labelled(Api):
    """A client whose requests have labels."""

    def __init__(self, settings: Settings, key: str) -> None:
        super().__init__(settings, key)
        self._headers |= LABELS


@contextlib.contextmanager
def serving(settings: Settings, *, governed: bool) -> Iterator[Api]:
    """The API, with budgets and labels or without the ledger too."""
    with part(settings, "app.api" if governed else "benchmarks.governance.bare_api"):
        until_ready(settings)
        key = create_key(settings, ACCOUNT, "benchmark", 1, scope=EVERYTHING)
        if governed:
            set_budgets(settings, key, BUDGETS)
        yield Labelled(settings, key)


def set_budgets(settings: Settings, key: str, budgets: dict[str, dict[str, Any]]) -> None:
    """Set budgets over the API."""
    url = f"http://{settings.host}:{settings.port}/client/v4/accounts/{ACCOUNT}/ai/budgets"
    for name, terms in budgets.items():
        httpx.put(f"{url}/{name}", json=terms, headers={"authorization": f"Bearer {key}"}).raise_for_status()


def steward(*, governed: bool) -> str:
    """The module to run."""
    return "workers.steward" if governed else "benchmarks.governance.bare_steward"


def ingest(testbed: Testbed, items: int, pairs: int) -> dict[str, Any]:
    """Items per second through the API process."""
    sent = body(items)

    def rate(*, governed: bool) -> float:
        settings = testbed.settings(testbed.database())
        with serving(settings, governed=governed) as client:
            client.submit_lines(line(0), len(line(0)))
            began = monotonic()
            client.submit_lines(sent, len(sent))
            return items / (monotonic() - began)

    return paired("ingest", rate, pairs)


def drain(testbed: Testbed, items: int, pairs: int) -> dict[str, Any]:
    """Items per second from the first claim to the last result, with four workers and the steward, which reserves and books."""

    off: list[dict[str, int]] = []

    def rate(*, governed: bool) -> float:
        settings = testbed.settings(testbed.database())
        with serving(settings, governed=governed) as client, part(settings, steward(governed=governed)):
            client.submit_lines(body(items), items * len(line(0)))
            pool_id = asyncio.run(pool_at(settings.database_url))
            served(settings.database_url)
            seconds, _ = queue_drain.race(settings.database_url, pool_id, 64)
            queue_drain.settled(settings.database_url)
            if governed:
                off.append(drifts(settings.database_url))
        return items / seconds

    return paired("drain", rate, pairs) | {name: max(each[name] for each in off) for name in off[0]}


def paired(name: str, rate: Any, pairs: int, what: str = "ledger and budgets") -> dict[str, Any]:
    """The ratio of the rates with `what` (`governed`) and without, of pairs in turns, with its interval."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    for number in range(pairs):
        for governed in (True, False) if number % 2 else (False, True):
            rates[governed].append(rate(governed=governed))
            say(f"{name}, {'with' if governed else 'without'} {what}: {rates[governed][-1]:,.0f} items/s")
    ratio, low, high = interval([ours / bare for ours, bare in zip(rates[True], rates[False], strict=True)])
    return {
        f"{name}_ratio": round(ratio, 3),
        f"{name}_ratio_low": round(low, 3),
        f"{name}_ratio_high": round(high, 3),
        f"{name}_items_s": round(median(rates[True])),
        f"{name}_bare_items_s": round(median(rates[False])),
    }
