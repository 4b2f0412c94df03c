"""One cycle of one arm: a turn of many synchronous requests and one of few, beside batch work that never runs dry."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, fields, replace
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from app.headroom.engine_metrics import EngineGauges
from app.headroom.signals import BatchLoad, Scrape
from app.headroom.step_meter import StepMeter
from benchmarks.colocation.block_store import Block, BlockStore, write_whole
from benchmarks.colocation.driven import idle
from benchmarks.colocation.gpu_plan import ARMS, Visit
from benchmarks.colocation.gpu_sizes import GpuSize
from benchmarks.colocation.outside_clients import OURS, Client
from benchmarks.colocation.outside_results import token_times
from benchmarks.colocation.progress import Progress, grown
from benchmarks.colocation.real_system import System
from benchmarks.colocation.run_samples import RunSamples
from benchmarks.colocation.sync_callers import Call
from benchmarks.colocation.target import COMPLETIONS

BATCH_DIGITS = 6  # of the number that a batch prompt begins with; each digit is a token
SAMPLE_SECONDS = 0.5  # between two readings of the engine's counters
_WORKER = {
    "wasted": "slackwater_worker_wasted_tokens_total",
    "yields": "slackwater_worker_yields_total",
    "evicted": "slackwater_worker_harvest_evictions_total",
    "faults": "slackwater_worker_harvest_faults_total",
}
Row = tuple[float, dict[str, Any]]  # seconds since the cycle began, and the engine's counters


class CycleStore:
    """A folder with the raw results of finished cycles: the samples of each turn, and the engine's counters."""

    def __init__(self, folder: Path, same: dict[str, Any]) -> None:
        self._folder = folder
        self._blocks = BlockStore(folder, same)

    def done(self, cycles: int) -> list[Visit]:
        """The finished cycles up to this number. The whole cycle is stored last, so that a cut cycle does not count."""
        found = [(arm, cycle) for arm in ARMS for cycle in range(1, cycles + 1)]
        return [visit for visit in found if self._blocks.has(visit[0], "cycle", visit[1])]

    def store(self, visit: Visit, blocks: dict[str, Block], rows: Sequence[Row]) -> None:
        """Store a finished cycle."""
        arm, cycle = visit
        write_whole(self._rows(visit), json.dumps(list(rows)))
        for workload, block in blocks.items():
            self._blocks.store(arm, workload, cycle, block)

    def load(self, visit: Visit, workload: str) -> Block:
        """The block of a finished cycle."""
        return self._blocks.load(visit[0], workload, visit[1])

    def rows(self, visit: Visit) -> list[Row]:
        """The engine's counters in a finished cycle."""
        return [(at, counters) for at, counters in json.loads(self._rows(visit).read_text())]

    def _rows(self, visit: Visit) -> Path:
        return self._folder / f"{visit[0]}.counters.{visit[1]}.json"


async def run_cycle(system: System, client: Client, size: GpuSize, visit: Visit) -> tuple[dict[str, Block], list[Row]]:
    """Run one cycle. Returns its blocks by workload, and the engine's counters."""
    arm, cycle = visit
    salt = 10 + ARMS.index(arm) + len(ARMS) * cycle
    async with AsyncExitStack() as stack:
        if arm != "sync_only":
            lengths = size.batch_lengths(cycle)
            words = max(1, size.batch_prompt - BATCH_DIGITS)
            await stack.enter_async_context(system.backlog_of(lengths, words, salt=salt))
            await asyncio.sleep(size.warm_seconds)
        progress, worker = Progress(lambda: _gauges(system)), Progress(system.worker_metrics)
        began = monotonic()
        async with worker.watched(None), progress.watched(SAMPLE_SECONDS):
            calls = await _callers(system, client, size, visit, salt)
        ended = monotonic()
    if client.name != OURS and calls:  # a tool starts when it is ready
        began += calls[0].sent - size.arrivals(cycle)[0].at
    rows = [(at - began, counters) for at, counters in progress.rows]
    blocks = blocks_of(size, _shifted(calls, client, size, cycle), rows, batch=arm != "sync_only")
    counted: dict[str, Any] = {name: round(worker.grown(metric, began, ended)) for name, metric in _WORKER.items()}
    blocks["cycle"] = replace(blocks["cycle"], outcome=replace(blocks["cycle"].outcome, **counted))
    return blocks, rows


async def _callers(system: System, client: Client, size: GpuSize, visit: Visit, salt: int) -> list[Call]:
    arm, cycle = visit
    if arm == "batch_only":
        await asyncio.sleep(2 * size.turn_seconds)
        return []
    calls = await client.call(system.target(COMPLETIONS), size.arrivals(cycle), salt=salt)
    last = max(call.end or call.sent for call in calls)
    first = 0.0 if client.name == OURS else calls[0].sent
    await asyncio.sleep(max(0.0, first + 2 * size.turn_seconds - last))
    return calls


def _shifted(calls: list[Call], client: Client, size: GpuSize, cycle: int) -> list[Call]:
    """The calls with times since the cycle began. Those of a tool are counted from its own start."""
    if client.name == OURS or not calls:
        return calls
    begin = calls[0].sent - size.arrivals(cycle)[0].at
    for call in calls:
        call.due, call.sent = call.due - begin, call.sent - begin
        call.first = None if call.first is None else call.first - begin
        call.end = None if call.end is None else call.end - begin
    return calls


async def _gauges(system: System) -> dict[str, float]:
    return asdict(await system.gauges())


def blocks_of(size: GpuSize, calls: Sequence[Call], rows: Sequence[Row], *, batch: bool = True) -> dict[str, Block]:
    """The samples of each turn and of the whole cycle.

    A call belongs to the turn in which it was due. Batch tokens are those that the engine generated in the turn, without the
    tokens of synchronous requests. They are 0 without `batch`.
    """
    tokens = np.array([at for call in calls for at in token_times(call)])
    blocks = {}
    for workload, begin, end in size.phases():
        own = [call for call in calls if begin <= call.due < end]
        synchronous = int(np.count_nonzero((tokens >= begin) & (tokens < end)))
        made = grown(list(rows), "generation_tokens", begin, end) - synchronous
        blocks[workload] = Block(_samples(own, end - begin, round(made) if batch else 0), own, idle(own, end - begin))
    return blocks


def _samples(calls: Sequence[Call], seconds: float, output_tokens: int) -> RunSamples:
    return RunSamples(
        seconds=seconds,
        ttft=np.array([call.ttft for call in calls if call.ttft is not None]),
        itl=np.array([gap for call in calls for gap in call.gaps]),
        prompt_tokens=0,
        output_tokens=max(0, output_tokens),
        wasted=0,
        unserved=sum(call.ttft is None for call in calls),
        evicted=0,
        preempted=0,
        faults=0,
        yields=0,
        plan=np.array([]),
    )


def fitted(listed: Sequence[Sequence[Row]]) -> dict[str, Any] | None:
    """The step model of the worker, learned from the counters of all cycles of one kind of engine. None: too few readings."""
    names = {field.name for field in fields(EngineGauges)}
    meter = StepMeter()
    for number, rows in enumerate(listed):
        for at, counters in rows:
            gauges = EngineGauges(**{name: value for name, value in counters.items() if name in names})
            meter.observe(Scrape(gauges, 1e6 * (number + 1) + at, 0), BatchLoad())
        meter.observe(Scrape(None, 0.0, 0), BatchLoad())  # the next cycle does not continue this one
    model = meter.model
    if not model.samples:
        return None
    return {
        "base_ms": round(1e3 * model.base, 3),
        "us_per_token_below_knee": round(1e6 * model.slope_below, 3),
        "us_per_token_above_knee": round(1e6 * model.slope_above, 3),
        "knee_tokens": model.knee,
        "us_per_1000_context_tokens": round(1e9 * model.per_context, 3),
        "relative_error": round(model.error, 3),
        "observations": model.samples,
    }
