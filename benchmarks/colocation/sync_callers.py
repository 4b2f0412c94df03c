"""Synchronous callers in an open loop: each request is sent at its time, whether or not earlier ones are answered."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic

import aiohttp
import orjson

from benchmarks.colocation.target import CHAT, Target
from benchmarks.colocation.workloads import Arrival
from benchmarks.prompts import numbered_prompt


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


async def call_all(target: Target, due: Sequence[Arrival], *, salt: int) -> list[Call]:
    """Send every arrival as a streamed request. Each `salt` has other prompts."""
    began = monotonic()
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(headers=target.headers, connector=connector, timeout=timeout) as session:
        tasks = []
        for number, arrival in enumerate(due):
            await asyncio.sleep(max(0.0, began + arrival.at - monotonic()))
            tasks.append(asyncio.create_task(_call(session, target, arrival, number_of(salt, number), began)))
        return await asyncio.gather(*tasks)


def number_of(salt: int, number: int) -> int:
    """The number of the prompt of an arrival: unique over all runs of one engine."""
    return salt * 100_000 + number


async def _call(session: aiohttp.ClientSession, target: Target, arrival: Arrival, number: int, began: float) -> Call:
    call = Call(arrival.at, monotonic() - began)
    prompt = numbered_prompt(number, arrival.prompt)
    body = {
        "model": target.model,
        **({"messages": [{"role": "user", "content": prompt}]} if target.route == CHAT else {"prompt": prompt}),
        "max_tokens": arrival.output,
        "ignore_eos": True,
        "stream": True,
    }
    try:
        async with session.post(target.url, json=body) as response:
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
    """Note a token. Chat begins with an event without one; a completion may have one without text."""
    choices = message.get("choices")
    if not isinstance(choices, list) or not choices:
        return
    if "delta" in choices[0] and not choices[0]["delta"].get("content"):
        return
    if call.first is None:
        call.first = now
    else:
        call.gaps.append(now - (call.end or call.first))
    call.end, call.tokens = now, call.tokens + 1
