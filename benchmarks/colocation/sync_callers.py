"""Synchronous callers in an open loop: each request is sent at its time, whether or not earlier ones are answered."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from time import monotonic

import aiohttp
import orjson

from benchmarks.colocation.real_system import System
from benchmarks.colocation.workloads import Arrival
from benchmarks.prompts import numbered_prompt

CYCLE_SECONDS = 16.0  # period of on/off traffic: twice the rate in one half, nothing in the other


@dataclass(slots=True)
class Call:
    """One request of a caller. Times are seconds since the start of the run; `gaps` are those between tokens."""

    due: float
    sent: float
    first: float | None = None
    end: float | None = None
    tokens: int = 0
    gaps: list[float] = field(default_factory=list)
    error: str = ""

    @property
    def ttft(self) -> float | None:
        """Counted from the time at which the request was due, so that a late client adds to it."""
        return None if self.first is None else self.first - self.due


def arrivals(kind: str, count: int, rate: float, words: int, tokens: int, seed: int) -> list[Arrival]:
    """`count` arrivals at `rate` per second on average. `kind`: `poisson`, or `onoff` with bursts of twice the rate."""
    chance, at, listed = Random(f"{seed} {kind}"), 0.0, []
    for _ in range(count):
        at += chance.expovariate(rate if kind == "poisson" else 2 * rate)
        if kind == "onoff" and at % CYCLE_SECONDS >= CYCLE_SECONDS / 2:
            at = (at // CYCLE_SECONDS + 1) * CYCLE_SECONDS
        listed.append(
            Arrival(at, chance.randint(words // 2, words * 3 // 2), chance.randint(tokens // 2, tokens * 3 // 2))
        )
    return listed


async def call_all(system: System, due: Sequence[Arrival], *, salt: int) -> list[Call]:
    """Send every arrival as a streamed request through the gateway."""
    began = monotonic()
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(headers=system.headers, connector=connector, timeout=timeout) as session:
        tasks = []
        for number, arrival in enumerate(due):
            await asyncio.sleep(max(0.0, began + arrival.at - monotonic()))
            tasks.append(asyncio.create_task(_call(session, system, arrival, salt * 100_000 + number, began)))
        return await asyncio.gather(*tasks)


async def _call(session: aiohttp.ClientSession, system: System, arrival: Arrival, number: int, began: float) -> Call:
    call = Call(arrival.at, monotonic() - began)
    body = {
        "model": system.model,
        "messages": [{"role": "user", "content": numbered_prompt(number, arrival.prompt)}],
        "max_tokens": arrival.output,
        "ignore_eos": True,
        "stream": True,
    }
    try:
        async with session.post(f"{system.base}/ai/v1/chat/completions", json=body) as response:
            if response.status != 200:
                call.error = f"HTTP {response.status}"
                return call
            async for line in response.content:
                if line.startswith(b"data: {"):
                    _record(call, orjson.loads(line[6:]), monotonic() - began)
    except (aiohttp.ClientError, TimeoutError) as error:
        call.error = repr(error)
    call.end = monotonic() - began
    return call


def _record(call: Call, message: dict[str, object], now: float) -> None:
    choices = message.get("choices")
    if not isinstance(choices, list) or not choices or not choices[0].get("delta", {}).get("content"):
        return
    if call.first is None:
        call.first = now
    else:
        call.gaps.append(now - (call.end or call.first))
    call.end, call.tokens = now, call.tokens + 1
