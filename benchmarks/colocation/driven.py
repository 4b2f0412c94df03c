"""One run of callers against an installation, with what batch work got meanwhile."""

import asyncio
from collections.abc import Sequence
from time import monotonic

import numpy as np

from benchmarks.colocation.block_store import Block
from benchmarks.colocation.outside_clients import OURS, Client
from benchmarks.colocation.progress import Progress
from benchmarks.colocation.real_system import System
from benchmarks.colocation.run_samples import RunSamples
from benchmarks.colocation.sync_callers import Call
from benchmarks.colocation.target import CHAT, COMPLETIONS
from benchmarks.colocation.workloads import Arrival

_PREFIX = "slackwater_worker_"
_STORED = "stored_tokens"
_WATCH_SECONDS = 1.0  # between two readings while a tool runs, which needs some seconds before its first request


async def drive(system: System, client: Client, due: Sequence[Arrival], *, salt: int) -> Block:
    """Every arrival through the gateway. Our own client asks for chat completions, a tool for completions.

    The run of a tool lasts from its first request to the end of its last one. Raises ToolError.
    """
    ours = client.name == OURS
    target = system.target(CHAT if ours else COMPLETIONS)
    progress = Progress(lambda: _counters(system))
    began = monotonic()
    async with progress.watched(None if ours else _WATCH_SECONDS):
        calls = await client.call(target, due, salt=salt)
        ended = monotonic()
    first = 0.0 if ours else min(call.sent for call in calls)
    last = ended - began if ours else max(call.end or call.sent for call in calls)
    return Block(outcome(progress, calls, began + first, began + last), calls, idle(calls, last - first))


async def pause(system: System, seconds: float) -> Block:
    """The same without callers."""
    progress = Progress(lambda: _counters(system))
    began = monotonic()
    async with progress.watched(None):
        await asyncio.sleep(seconds)
        ended = monotonic()
    return Block(outcome(progress, [], began, ended), [], 1.0)


async def _counters(system: System) -> dict[str, float]:
    return {_STORED: await system.stored_tokens(), **await system.worker_metrics()}


def outcome(progress: Progress, calls: Sequence[Call], begin: float, end: float) -> RunSamples:
    """The samples of the calls, and what grew between two moments on the monotonic clock."""

    def grown(name: str) -> int:
        return round(progress.grown(name, begin, end))

    return RunSamples(
        seconds=end - begin,
        ttft=np.array([call.ttft for call in calls if call.ttft is not None]),
        itl=np.array([gap for call in calls for gap in call.gaps]),
        prompt_tokens=0,
        output_tokens=grown(_STORED),
        wasted=grown(f"{_PREFIX}wasted_tokens_total"),
        unserved=sum(call.ttft is None for call in calls),
        evicted=grown(f"{_PREFIX}harvest_evictions_total"),
        preempted=0,
        yields=grown(f"{_PREFIX}yields_total"),
        faults=grown(f"{_PREFIX}harvest_faults_total"),
        plan=np.array([]),
    )


def idle(calls: Sequence[Call], seconds: float) -> float:
    """The share of the time in which no synchronous request was open."""
    busy, until = 0.0, 0.0
    for call in sorted(calls, key=lambda c: c.sent):
        end = call.end or call.sent
        busy += max(0.0, end - max(until, call.sent))
        until = max(until, end)
    return max(0.0, 1 - busy / seconds)
