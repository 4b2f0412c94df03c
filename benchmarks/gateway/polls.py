"""Arm: status polls at a fixed rate, with one API process and thousands of batches in the queue.

The latency of a poll counts from the time at which it was due, so that it includes the delay of an overloaded server. A
second after the last poll was due, open polls are given up. They count with the time that they have waited.
"""

import asyncio
import random
from collections.abc import Sequence
from time import monotonic
from typing import Any

import orjson

from app.db.pool import Database
from benchmarks.gateway.http_client import HttpCaller, HttpTarget
from benchmarks.gateway.installation import installation
from benchmarks.harness import Testbed, say
from benchmarks.queue.workload import Submitter, line
from benchmarks.statistics import percentiles

MOST_CONNECTIONS = 256
WARM_SECONDS = 1.0
GRACE_SECONDS = 1.0


async def submitted(testbed: Testbed, url: str, batches: int) -> None:
    """Submit `batches` batches of four items."""
    settings = testbed.settings(url)
    async with Database(url) as database:
        submitter = await Submitter.of(settings, database)
        for number in range(batches):
            await submitter.submit(b"".join(line(4 * number + k) for k in range(4)))


async def offered(target: HttpTarget, ids: Sequence[str], rate: float, seconds: float) -> dict[str, float]:
    """Poll random batches at `rate` per second. Returns the answered polls per second and their latencies."""
    waiting: dict[asyncio.Task[object], float] = {}
    latencies: list[float] = []
    errors: list[BaseException] = []
    rng, given_up = random.Random(7), 0

    def over(task: asyncio.Task[object]) -> None:
        latencies.append((monotonic() - waiting.pop(task)) * 1e3)
        if not task.cancelled() and (error := task.exception()):
            errors.append(error)

    async with HttpCaller(target, MOST_CONNECTIONS) as caller:
        began = monotonic()
        for k in range(round(rate * seconds)):
            due = began + k / rate
            if (wait := due - monotonic()) > 0 or k % 32 == 0:
                await asyncio.sleep(max(0.0, wait))
            body = orjson.dumps({"request_id": rng.choice(ids)})
            task: asyncio.Task[object] = asyncio.create_task(caller.post(body))
            waiting[task] = due
            task.add_done_callback(over)
        done = len(latencies) / (monotonic() - began)
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=GRACE_SECONDS)
            for each in late:
                each.cancel()
            given_up = len(late)
            await asyncio.gather(*late, return_exceptions=True)
    if errors:
        raise SystemExit(f"{len(errors)} polls failed, the first one: {errors[0]!r}")
    p50, p99 = percentiles(latencies)
    say(f"polls at {rate:,.0f}/s: {done:,.0f} answered/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms, {given_up} given up")
    return {"answered_s": round(done, 1), "p50_ms": round(p50, 2), "p99_ms": round(p99, 2), "given_up": given_up}


def polls(testbed: Testbed, batches: int, rates: Sequence[float], seconds: float) -> dict[str, Any]:
    """Run all rates. The keys without a rate are the figures of the last one."""
    with installation(testbed, []) as installed:
        asyncio.run(submitted(testbed, installed.database_url, batches))
        ids = asyncio.run(_ids(installed.database_url))
        asyncio.run(offered(installed.run, ids, 50, WARM_SECONDS))
        found = {rate: asyncio.run(offered(installed.run, ids, rate, seconds)) for rate in rates}
    last = found[rates[-1]]
    return {
        "polls_offered_s": rates[-1],
        "polls_s": last["answered_s"],
        "polls_p50_ms": last["p50_ms"],
        "polls_p99_ms": last["p99_ms"],
        "polls_batches": batches,
        "polls_by_rate": {f"{rate:g}": figures for rate, figures in found.items()},
    }


async def _ids(url: str) -> list[str]:
    async with Database(url, size=1) as database, database.relaxed() as conn:
        return [str(row[0]) for row in await (await conn.execute("select request_id from batch")).fetchall()]
