"""Arms: the time that a route adds to the first token of a stream, and the throughput of each route.

All routes take turns of one second in the same run, so that other load on the machine affects all of them alike. Within a
turn, requests are sent at a fixed rate, whether or not earlier ones are answered.
"""

import asyncio
import random
from collections.abc import Mapping
from statistics import median
from time import monotonic
from typing import Any

import orjson

from benchmarks.gateway.http_client import HttpCaller, HttpTarget
from benchmarks.gateway.installation import question
from benchmarks.harness import say
from benchmarks.statistics import percentiles

TURN_SECONDS = 1.0


async def first_tokens(
    routes: Mapping[str, HttpTarget], rounds: int, rate: float, tokens: int = 8
) -> dict[str, list[list[float]]]:
    """For each route, the milliseconds to the first token by round. The first round is warm-up and is left out."""
    found: dict[str, list[list[float]]] = {name: [] for name in routes}
    callers = {name: HttpCaller(target) for name, target in routes.items()}
    order, rng = list(routes), random.Random(7)
    for number in range(rounds + 1):
        rng.shuffle(order)
        for name in order:
            samples = await _turn(callers[name], number, rate, tokens)
            if number:
                found[name].append(samples)
    for caller in callers.values():
        await caller.__aexit__()
    return found


async def _turn(caller: HttpCaller, number: int, rate: float, tokens: int) -> list[float]:
    began, tasks = monotonic(), []
    for k in range(max(1, round(rate * TURN_SECONDS))):
        await asyncio.sleep(max(0.0, began + k / rate - monotonic()))
        body = orjson.dumps(question(f"question {number} {k}", max_tokens=tokens, ignore_eos=True))
        tasks.append(asyncio.create_task(caller.post(body)))
    return [answer.first_ms for answer in await asyncio.gather(*tasks)]


def added(found: Mapping[str, list[list[float]]]) -> dict[str, Any]:
    """Differences of percentiles to `direct`, over all rounds. The spread of the medians by round shows the noise."""
    pooled = {name: percentiles([ms for turn in turns for ms in turn]) for name, turns in found.items()}
    base50, base99 = pooled["direct"]
    figures: dict[str, Any] = {"ttft_samples": sum(len(turn) for turn in found["direct"])}
    for name, (p50, p99) in pooled.items():
        figures |= {f"{name}_ttft_p50_ms": round(p50, 2), f"{name}_ttft_p99_ms": round(p99, 2)}
        say(f"first token, {name}: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    by_round = [
        median(gateway) - median(direct) for gateway, direct in zip(found["gateway"], found["direct"], strict=True)
    ]
    figures["added_ttft_p50_ms_by_round"] = [round(min(by_round), 2), round(max(by_round), 2)]
    for name in found.keys() - {"direct"}:
        prefix = "" if name == "gateway" else f"{name}_"
        p50, p99 = pooled[name]
        figures[f"{prefix}added_ttft_p50_ms"] = round(p50 - base50, 2)
        figures[f"{prefix}added_ttft_p99_ms"] = round(p99 - base99, 2)
    return figures


async def throughput(routes: Mapping[str, HttpTarget], seconds: float, callers: int = 32) -> dict[str, Any]:
    """Whole answers per second with `callers` callers, each of which sends a request as soon as it is answered."""
    figures: dict[str, Any] = {"throughput_callers": callers}
    for name, target in routes.items():
        async with HttpCaller(target) as caller:
            rate = await _closed_loop(caller, seconds, callers)
        figures["requests_s" if name == "gateway" else f"{name}_requests_s"] = round(rate, 1)
        say(f"throughput, {name}: {rate:,.0f} requests/s")
    return figures


async def _closed_loop(caller: HttpCaller, seconds: float, callers: int) -> float:
    body = orjson.dumps({**question("again", max_tokens=4), "stream": False})
    began = monotonic()

    async def ask() -> int:
        count = 0
        while monotonic() - began < seconds:
            await caller.post(body)
            count += 1
        return count

    return sum(await asyncio.gather(*(ask() for _ in range(callers)))) / (monotonic() - began)
